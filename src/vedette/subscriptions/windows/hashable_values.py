"""Convert document values for aggregates and back. Documents hold values that aggregates of typed attributes do not
expect; no document may break the windows of others.

    maps          are not hashable: in group keys, DISTINCT and COLLECT a hashable wrapper replaces them
    durations     are summed as milliseconds, separately: a number and a duration have no sum
"""

from __future__ import annotations

from datetime import timedelta
from math import floor, nan
from typing import Any, NamedTuple

from vedette.values import duration_from_ms, duration_to_ms, is_nan

__all__ = ["HashableValue", "from_hashable", "merge_sums", "milliseconds", "to_hashable"]


class HashableValue(NamedTuple):
    """Hashable form of a value that contains a map. Only equal values are equal: True is not 1, and NaN equals
    itself, because otherwise a group could never be left."""

    kind: str
    parts: tuple[Any, ...]


def to_hashable(value: Any) -> Any:
    """Return the value, or a hashable wrapper if it contains a map."""
    return _wrap(value) if _holds_map(value) else value


def from_hashable(value: Any) -> Any:
    """Undo `to_hashable`, also for each item of a list."""
    if isinstance(value, list):
        return [from_hashable(item) for item in value]
    if not isinstance(value, HashableValue):
        return value
    match value.kind:
        case "map":
            return {name: from_hashable(item) for name, item in value.parts}
        case "list":
            return [from_hashable(item) for item in value.parts]
    return nan if value.kind == "NaN" else value.parts[0]


def _wrap(value: Any) -> Any:
    if isinstance(value, dict):
        return HashableValue("map", tuple((name, _wrap(value[name])) for name in sorted(value)))
    if isinstance(value, list):
        return HashableValue("list", tuple(map(_wrap, value)))
    if isinstance(value, bool):
        return HashableValue("bool", (value,))
    return HashableValue("NaN", ()) if is_nan(value) else value


def _holds_map(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_holds_map, value))
    return isinstance(value, dict)


def milliseconds(value: Any) -> int | None:
    return duration_to_ms(value) if isinstance(value, timedelta) else None


def merge_sums(numbers: Any, durations: Any) -> Any:
    """Result of SUM or AVG: of the numbers if there are any, else of the durations in milliseconds. Null if it
    exceeds the range of a duration."""
    if numbers is not None or durations is None:
        return numbers
    try:
        return duration_from_ms(floor(durations))
    except OverflowError:
        return None

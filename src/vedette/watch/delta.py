"""The difference one commit makes to one match of a watch: added, removed or changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mypy_extensions import mypyc_attr

from vedette.values import is_nan

__all__ = ["ADDED", "CHANGED", "REMOVED", "Delta", "value_key", "values_equal"]

ADDED = "added"
REMOVED = "removed"
CHANGED = "changed"


@mypyc_attr(acyclic=True)
class Delta:
    """The content of one event, shared by all watches that receive it. Positions belong to the watch."""

    __slots__ = ("delivery", "events", "identity", "match", "matches", "order", "prev", "type", "window")

    def __init__(
        self,
        type: str,
        match: Mapping[str, Any] | None,
        prev: Mapping[str, Any] | None = None,
        identity: Any = None,
        order: tuple[Any, ...] = (),
    ) -> None:
        self.type = type
        self.match = match
        self.prev = prev
        self.identity = identity
        """Identifies the match. Events of one identity are never reordered."""
        self.order = order
        """Values of the ordering terms; for `removed`, those of the old row."""
        self.matches: list[Mapping[str, Any]] | None = None
        """`initial`: all current matches."""
        self.events: list[Any] | None = None
        """`window`: the events of the window."""
        self.window: tuple[Any, Any] | None = None
        """Start and end of the window that the event belongs to."""
        self.delivery: tuple[str, int] | None = None
        """`consumed`: the delivery id and the attempt number."""

    def __repr__(self) -> str:
        return f"<{self.type} {self.match}>"


def values_equal(old: Any, new: Any) -> bool:
    """Equality as readers see it: 1, 1.0 and true differ; NaN equals NaN."""
    if old is new:
        return True
    kind = type(old)
    if kind is not type(new):
        return False
    if kind is dict:
        if old.keys() != new.keys():  # the type has gained attributes: a missing one counts as null
            return all(values_equal(old.get(name), new.get(name)) for name in old.keys() | new.keys())
        for name, value in old.items():
            other = new[name]
            if value is not other and not values_equal(value, other):
                return False
        return True
    if kind is list:
        return len(old) == len(new) and all(map(values_equal, old, new))
    return bool(old == new) or (is_nan(old) and is_nan(new))


def value_key(value: Any) -> Any:
    """A hashable form of a row or value. Keys are equal if and only if `values_equal` holds."""
    if isinstance(value, dict):
        return frozenset([(name, value_key(part)) for name, part in value.items() if part is not None])
    if isinstance(value, list):
        return ("list", *map(value_key, value))
    return (type(value).__name__, "nan" if is_nan(value) else value)

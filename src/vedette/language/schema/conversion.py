"""Which values a declared type takes, and the few that are converted on the way in (spec/language.md §2.1.2)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from vedette.language.types import Type
from vedette.values import Value, duration_from_ms, timestamp_from_ms

__all__ = ["NotConvertible", "assignable", "convert", "int_converter", "members_of", "python_classes"]

_CLASSES: dict[str, type] = {
    "String": str,
    "Int": int,
    "Float": float,
    "Bool": bool,
    "Timestamp": datetime,
    "Duration": timedelta,
    "ID": str,
    "Node": str,
    "Edge": str,
}
_FROM_INT: dict[str, Callable[[int], Value]] = {
    "Float": float,
    "Timestamp": timestamp_from_ms,
    "Duration": duration_from_ms,
}
_TEXT_LIKE = frozenset({"String", "ID"})


class NotConvertible(ValueError):
    """The value is not one of the type."""


def members_of(type_: Type) -> tuple[Type, ...]:
    return type_.members if type_.kind == "Union" else (type_,)


def python_classes(type_: Type) -> tuple[type, ...]:
    """The Python classes of the values that need no conversion."""
    return tuple(dict.fromkeys(_CLASSES[member.kind] for member in members_of(type_)))


def int_converter(type_: Type) -> Callable[[int], Value] | None:
    """How an Int becomes a value of the type, when it is none already; milliseconds for timestamps and durations."""
    kinds = [member.kind for member in members_of(type_)]
    return None if "Int" in kinds else next((_FROM_INT[kind] for kind in kinds if kind in _FROM_INT), None)


def convert(value: Value, type_: Type) -> Value:
    """The value as an attribute of the type stores it; raises Unfit."""
    if type(value) in python_classes(type_):
        return value
    convert = int_converter(type_)
    if convert is None or type(value) is not int:
        raise NotConvertible
    try:
        return convert(value)
    except OverflowError:
        raise NotConvertible from None


def assignable(source: Type, target: Type) -> bool:
    """Whether values of the static type `source` may be stored where `target` is declared; of a union one may do."""
    if source.kind in ("Any", "Null"):
        return True
    wanted = {member.kind for member in members_of(target)}
    return any(_takes(wanted, member.kind) for member in members_of(source))


def _takes(wanted: set[str], kind: str) -> bool:
    if kind == "Int":
        return bool(wanted & {"Int", *_FROM_INT})
    return bool(wanted & _TEXT_LIKE) if kind in _TEXT_LIKE else kind in wanted

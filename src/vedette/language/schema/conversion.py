"""Which values may be stored in an attribute of a declared type, and how an Int is converted before it is stored.

docs/reference/language/lexical.md#values lists the conversions.
"""

from __future__ import annotations

from collections.abc import Callable

from vedette.language.types import Type
from vedette.language.value_kinds import CLASS_BY_KIND
from vedette.values import Value, duration_from_ms, timestamp_from_ms

__all__ = [
    "NotConvertible",
    "convert",
    "int_converter",
    "is_assignable",
    "is_constant_assignable",
    "python_classes",
]

_FROM_INT: dict[str, Callable[[int], Value]] = {
    "Float": float,
    "Timestamp": timestamp_from_ms,
    "Duration": duration_from_ms,
}
_TEXT_LIKE = frozenset({"String", "ID"})


class NotConvertible(ValueError):
    """The value is not of the type, and no conversion applies."""


def python_classes(type_: Type) -> tuple[type, ...]:
    """Return the classes of the values that need no conversion."""
    return tuple(dict.fromkeys(CLASS_BY_KIND[member.kind] for member in type_.alternatives))


def int_converter(type_: Type) -> Callable[[int], Value] | None:
    """Return the function that converts an Int to the type; None if the type contains Int or no conversion applies.

    For timestamps and durations the Int is a number of milliseconds.
    """
    kinds = [member.kind for member in type_.alternatives]
    return None if "Int" in kinds else next((_FROM_INT[kind] for kind in kinds if kind in _FROM_INT), None)


def convert(value: Value, type_: Type) -> Value:
    """Return the value as an attribute of the type stores it; raises NotConvertible."""
    if type(value) in python_classes(type_):
        return value
    convert = int_converter(type_)
    if convert is None or type(value) is not int:
        raise NotConvertible
    try:
        return convert(value)
    except OverflowError:
        raise NotConvertible from None


def is_assignable(source: Type, target: Type) -> bool:
    """True if a statement may store a value of the static type `source` in an attribute declared as `target`.

    A String may be the id of a reference. For Any and unions the validator checks the value at run time.
    """
    if source == target or source.kind in ("Any", "Null") or target.kind == "Any":
        return True
    if source.kind == "Union":
        return any(is_assignable(member, target) for member in source.members)
    if target.kind == "Union":
        return any(is_assignable(source, member) for member in target.members)
    if target.is_reference or target.kind == "ID":
        return source.is_reference or source.kind in ("ID", "String")
    if source.kind == "Int":
        return target.kind in _FROM_INT
    return source.kind == target.kind


def is_constant_assignable(source: Type, target: Type) -> bool:
    """True if a constant of type `source` may be the default of an attribute declared as `target`.

    Unlike in `is_assignable`, a String is not taken for the id of a reference: a default cannot name an element.
    """
    if source.kind in ("Any", "Null"):
        return True
    kinds = {member.kind for member in target.alternatives}
    return any(_accepts_constant(kinds, member.kind) for member in source.alternatives)


def _accepts_constant(kinds: set[str], kind: str) -> bool:
    if kind == "Int":
        return bool(kinds & {"Int", *_FROM_INT})
    return bool(kinds & _TEXT_LIKE) if kind in _TEXT_LIKE else kind in kinds

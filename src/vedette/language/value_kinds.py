"""The kind and static type of a Python value, the class of each kind, and values in error messages."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from vedette.element import Element
from vedette.language.types import (
    ANY_VALUE,
    NULL,
    SCALARS,
    Type,
    edge_type,
    list_of,
    node_type,
)
from vedette.values import duration_to_text, timestamp_to_text

__all__ = [
    "CLASS_BY_KIND",
    "KIND_BY_CLASS",
    "format_for_error",
    "kind_of_value",
    "type_of_class",
    "type_of_value",
]

KIND_BY_CLASS: dict[type, str] = {
    str: "String",
    int: "Int",
    float: "Float",
    bool: "Bool",
    datetime: "Timestamp",
    timedelta: "Duration",
    type(None): "Null",
    list: "List",
    dict: "Map",
}
"""The result of `type_of` by class. An id is a str; only its static type says that it is a reference."""

CLASS_BY_KIND: dict[str, type] = {
    **{kind: class_ for class_, kind in KIND_BY_CLASS.items()},
    "ID": str,
    "Node": str,
    "Edge": str,
}
"""The class of the values of each kind. A reference is stored as the id of its element."""

_TYPE_BY_CLASS: dict[type, Type] = {
    class_: SCALARS[kind] for class_, kind in KIND_BY_CLASS.items() if kind in SCALARS
} | {type(None): NULL, list: list_of(ANY_VALUE)}
_SHOWN_LENGTH = 60
"""Characters of a value that an error message shows."""


def kind_of_value(value: Any) -> str:
    """Return the name of the value's type; for an element, its node or edge type."""
    return value.type if type(value) is Element else KIND_BY_CLASS.get(type(value), type(value).__name__)


def type_of_class(class_: type) -> Type:
    """Return the static type of the values of a Python class; Any if there is none."""
    return _TYPE_BY_CLASS.get(class_, ANY_VALUE)


def type_of_value(value: Any) -> Type:
    """Return the static type of this value; Any for documents, and for the items of mixed or empty lists."""
    if isinstance(value, list):
        items = {type_of_value(item) for item in value}
        return list_of(items.pop() if len(items) == 1 else ANY_VALUE)
    if isinstance(value, Element):
        return node_type(value.type) if value.targets is None else edge_type(value.type)
    return type_of_class(type(value))


def format_for_error(value: Any) -> str:
    """Return the value as a literal, cut to a readable length."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            text = value if len(value) <= _SHOWN_LENGTH else value[:_SHOWN_LENGTH] + "…"
            return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
        case datetime():
            return "@" + timestamp_to_text(value)
        case timedelta():
            return duration_to_text(value)
        case Element():
            return f"#{value.id}"
        case list():
            return _format_list(value)
        case _:
            return str(value)[:_SHOWN_LENGTH]


def _format_list(items: list[Any]) -> str:
    shown = ", ".join(format_for_error(item) for item in items[:10])
    return f"[{shown}, …]" if len(items) > 10 else f"[{shown}]"

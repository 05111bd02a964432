"""What a value at hand is: its kind by name, its static type, and how an error shows it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from vedette.element import Element
from vedette.language.types import (
    ANY_VALUE,
    BOOL,
    DURATION,
    FLOAT,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    Type,
    edge_type,
    list_of,
    node_type,
)
from vedette.values import duration_to_text, timestamp_to_text

__all__ = ["KIND_BY_CLASS", "format_for_error", "kind_of_value", "type_of_value"]

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
"""What `type_of` calls a value. An id is a str: that it is a reference, only its static type can tell."""

_TYPES: dict[type, Type] = {
    str: STRING,
    int: INT,
    float: FLOAT,
    bool: BOOL,
    datetime: TIMESTAMP,
    timedelta: DURATION,
    type(None): NULL,
}
_SHOWN_LENGTH = 60


def kind_of_value(value: Any) -> str:
    """The name of the value's type; of an element, the type it was spawned or linked as."""
    return value.type if type(value) is Element else KIND_BY_CLASS.get(type(value), type(value).__name__)


def type_of_value(value: Any) -> Type:
    """The static type that this very value has; Any for documents and for mixed or empty lists."""
    if isinstance(value, list):
        items = {type_of_value(item) for item in value}
        return list_of(items.pop() if len(items) == 1 else ANY_VALUE)
    if isinstance(value, Element):
        return node_type(value.type) if value.targets is None else edge_type(value.type)
    return _TYPES.get(type(value), ANY_VALUE)


def format_for_error(value: Any) -> str:
    """The value as a literal, cut to a readable length."""
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
            return _show_list(value)
        case _:
            return str(value)[:_SHOWN_LENGTH]


def _show_list(items: list[Any]) -> str:
    shown = ", ".join(format_for_error(item) for item in items[:10])
    return f"[{shown}, …]" if len(items) > 10 else f"[{shown}]"

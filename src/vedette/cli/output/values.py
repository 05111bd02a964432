"""Values as people read them in a terminal: one line each, and nothing in the data can drive the terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from vedette.values import duration_to_text, timestamp_to_text

__all__ = ["escape_controls", "format_id", "format_value"]

_PLAIN_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+")
_BIDIRECTIONAL = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_PICTURES = {
    **{code: 0x2400 + code for code in range(0x20)},
    0x7F: 0x2421,
    **dict.fromkeys((*range(0x80, 0xA0), 0x2028, 0x2029, *_BIDIRECTIONAL, *range(0xD800, 0xE000)), 0xFFFD),
}
"""Control characters and what is shown in their place: a picture of each, one column wide."""


def escape_controls(text: str) -> str:
    """The text with every control character, line breaks too, as a picture of it."""
    return text.translate(_PICTURES)


def format_value(value: Any, *, quoted: bool = False) -> str:
    """One value. A text is bare in a cell of its own, and `quoted` within a list or an element."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return escape_controls(json.dumps(value, ensure_ascii=False) if quoted or not value else value)
        case datetime():
            return timestamp_to_text(value)
        case timedelta():
            return duration_to_text(value)
        case dict():
            return _element_text(value)
        case list() | tuple():
            return f"[{', '.join(format_value(item, quoted=True) for item in value)}]"
    return str(value)


def format_id(id: object) -> str:
    """An id as it is written in a statement."""
    text = str(id)
    return f"#{text}" if _PLAIN_ID.fullmatch(text) else f"#{format_value(text, quoted=True)}"


def _element_text(image: Mapping[str, Any]) -> str:
    """`Task #t1 {title = "write docs", due = null}`."""
    values = {name: value for name, value in image.items() if name not in ("id", "_type")}
    inner = ", ".join(
        f"{escape_controls(name)} = {format_value(value, quoted=True)}" for name, value in values.items()
    )
    if "_type" not in image:
        return f"{{{inner}}}"
    return f"{image['_type']} {format_id(image.get('id'))} {{{inner}}}"

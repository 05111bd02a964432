"""Values and events as text for a terminal. Control characters in the data cannot affect the terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from vedette.change import Event
from vedette.values import duration_to_text, timestamp_to_text

__all__ = ["escape_controls", "format_event", "format_id", "format_value"]

_PLAIN_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+")
_BIDIRECTIONAL = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_PICTURES = {
    **{code: 0x2400 + code for code in range(0x20)},
    0x7F: 0x2421,
    **dict.fromkeys((*range(0x80, 0xA0), 0x2028, 0x2029, *_BIDIRECTIONAL, *range(0xD800, 0xE000)), 0xFFFD),
}
"""Control characters and their visible symbols, one column wide."""


def escape_controls(text: str) -> str:
    """Replace every control character, including line breaks, by a visible symbol."""
    return text.translate(_PICTURES)


def format_value(value: Any, *, quoted: bool = False) -> str:
    """Format one value. Text is quoted inside lists and elements."""
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
    """Format an id as statements write it."""
    text = str(id)
    return f"#{text}" if _PLAIN_ID.fullmatch(text) else f"#{format_value(text, quoted=True)}"


def _element_text(image: Mapping[str, Any]) -> str:
    """Return `Task #t1 {title = "write docs", due = null}`."""
    values = {name: value for name, value in image.items() if name not in ("id", "_type")}
    inner = ", ".join(
        f"{escape_controls(name)} = {format_value(value, quoted=True)}" for name, value in values.items()
    )
    if "_type" not in image:
        return f"{{{inner}}}"
    return f"{image['_type']} {format_id(image.get('id'))} {{{inner}}}"


def format_event(name: str, event: Event) -> Iterator[str]:
    """Yield `todo changed t.title = "a" → "b"`, and one more line per contained match or event."""
    words = [name, event.type] if name else [event.type]
    if event.match is not None:
        words.append(_row_text(event.match, event.prev))
    if event.matches is not None:
        words.append(f"{len(event.matches):,} {'match' if len(event.matches) == 1 else 'matches'}")
    if event.window_end is not None:
        words.append(f"({format_value(event.window_start)} … {format_value(event.window_end)})")
    if event.delivery_id is not None:
        attempt = event.attributes.get("attempt", 1)
        words.append(f"(#{event.delivery_id}{f', attempt {attempt}' if attempt > 1 else ''})")
    if event.dropped:
        words.append(f"({event.dropped:,} dropped before this event)")
    yield " ".join(words)
    yield from (f"  {_row_text(match, None)}" for match in event.matches or ())
    for inner in event.events or ():
        yield from (f"  {line}" for line in format_event("", inner))


def _row_text(row: Mapping[str, Any], before: Mapping[str, Any] | None) -> str:
    """Return `t.title = "a", t.n = 1 → 2`. Changed values are shown before and after."""
    olds = row if before is None else before
    return ", ".join(
        f"{escape_controls(name)} = {_step_text(olds.get(name), value)}" for name, value in row.items()
    )


def _step_text(old: Any, new: Any) -> str:
    if type(old) is type(new) and old == new:
        return format_value(new, quoted=True)
    if _is_same_element(old, new):
        names = [name for name in new if name not in ("id", "_type")]
        inner = ", ".join(
            f"{escape_controls(name)} = {_step_text(old.get(name), new[name])}" for name in names
        )
        return f"{escape_controls(new['_type'])} {format_id(new['id'])} {{{inner}}}"
    return f"{format_value(old, quoted=True)} → {format_value(new, quoted=True)}"


def _is_same_element(old: Any, new: Any) -> bool:
    return isinstance(old, dict) and isinstance(new, dict) and "_type" in new and old.get("id") == new["id"]

"""What a watch is told, as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vedette.change import Event
from vedette.cli.output.values import escape_controls, format_id, format_value

__all__ = ["format_event"]


def format_event(name: str, event: Event) -> Iterator[str]:
    """`todo changed t.title = "a" → "b"`, and a line more for each match or event that it holds."""
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
        words.append(f"({event.dropped:,} dropped before it)")
    yield " ".join(words)
    yield from (f"  {_row_text(match, None)}" for match in event.matches or ())
    for inner in event.events or ():
        yield from (f"  {line}" for line in format_event("", inner))


def _row_text(row: Mapping[str, Any], before: Mapping[str, Any] | None) -> str:
    """`t.title = "a", t.n = 1 → 2`: what is different is shown as it was and as it is."""
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

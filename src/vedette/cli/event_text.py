"""What a watch is told, as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from vedette.change import Event
from vedette.cli.value_text import value_text

__all__ = ["event_lines"]


def event_lines(name: str, event: Event) -> Iterator[str]:
    """`w1_1 added {t.title = "a"}`, and a line more for each match or event that it holds."""
    words = [name, event.type]
    if event.match is not None:
        words.append(value_text(dict(event.match)))
    if event.prev is not None:
        words.append(f"was {value_text(dict(event.prev))}")
    if event.matches is not None:
        words.append(f"{len(event.matches):,} {'match' if len(event.matches) == 1 else 'matches'}")
    if event.window_end is not None:
        words.append(f"{value_text(event.window_start)} … {value_text(event.window_end)}")
    if event.dropped:
        words.append(f"({event.dropped:,} dropped before it)")
    yield " ".join(words)
    yield from (f"  {value_text(dict(match))}" for match in event.matches or ())
    for inner in event.events or ():
        yield from (f" {line}" for line in event_lines("", inner))

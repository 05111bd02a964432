"""Text form of events in stories: parse expected events, format actual ones, compare them.

initial (nothing)                       a snapshot without matches; with them, a row on each indented line below
added "a" | 1                           a row, its values as literals
changed "a" | 1 -> "a" | 2              before and after
removed "a" | 2
consumed "a" | 1 (delivery d1)          later steps use the name for the delivery id; `attempt 2` is also a note
window 0s..10s                          times since the start of the story; the events of the window follow, indented
added "b" | 1 (tick 3, position 2)      notes: `tick`, `position`, `window`; `dropped` is always compared
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Any

from vedette.change import Event
from vedette.testing.stories.values import Names, render
from vedette.values import duration_to_text

__all__ = ["EVENT_FIELDS", "EventText", "compare_events", "event_text", "parse_event"]

_WITH_NOTES = re.compile(
    r"^(?P<head>.*?) \((?P<notes>(?:tick|position|dropped|window|delivery|attempt) [^()]*)\)$"
)

EVENT_FIELDS: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {
    "initial": (frozenset({"matches"}), frozenset({"window_start", "window_end", "dropped"})),
    "added": (frozenset({"match"}), frozenset({"window_start", "window_end", "dropped"})),
    "removed": (frozenset({"match"}), frozenset({"window_start", "window_end", "dropped"})),
    "changed": (frozenset({"match", "prev"}), frozenset({"window_start", "window_end", "dropped"})),
    "consumed": (frozenset({"match", "delivery_id"}), frozenset()),
    "window": (frozenset({"window_start", "window_end", "events"}), frozenset({"dropped"})),
}
"""By event type: required and optional payload fields besides type, tick and position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventText:
    """An event as text: its first line, the lines below it, and its notes by name."""

    head: str
    body: tuple[str, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)

    def matches(self, found: EventText) -> bool:
        """True if the actual event matches this expectation. Notes that are not listed are not compared."""
        expected = {"dropped": "0", **self.notes}
        return (self.head, self.body) == (found.head, found.body) and all(
            found.notes.get(name) == value for name, value in expected.items()
        )

    def lines(self) -> list[str]:
        notes = ", ".join(f"{name} {value}" for name, value in self.notes.items() if value != "0")
        return [f"{self.head} ({notes})" if notes else self.head, *(f"  {line}" for line in self.body)]


def parse_event(line: str, below: Sequence[str]) -> EventText:
    """Parse the expectation in a line and the indented lines below it."""
    noted = _WITH_NOTES.match(line)
    head = noted["head"] if noted is not None else line
    notes = dict(note.split(" ", 1) for note in noted["notes"].split(", ")) if noted is not None else {}
    kind = head.partition(" ")[0]
    if kind not in EVENT_FIELDS:
        raise ValueError(f"unknown event '{kind}': expected {', '.join(EVENT_FIELDS)} or (nothing)")
    if kind == "initial" and not below and head != "initial (nothing)":
        raise ValueError("write the rows below `initial`, or `initial (nothing)` if there are none")
    return EventText(head=head, body=tuple(sorted(below)), notes=notes)


def event_text(event: Event, names: Names, start: datetime) -> EventText:
    """Return the text with which a story expects this event."""
    notes = {"tick": str(event.tick), "position": str(event.position), "dropped": str(event.dropped)}
    if event.delivery_id is not None:
        notes["delivery"] = names.get(event.delivery_id, event.delivery_id)
        notes["attempt"] = str(event.attributes["attempt"])
    body: list[str] = []
    head = event.type
    if event.window_end is not None and event.window_start is not None:
        span = f"{_since(event.window_start, start)}..{_since(event.window_end, start)}"
        if event.type == "window":
            head = f"window {span}"
        else:
            notes["window"] = span
    if event.matches is not None:
        body = [_row(match, names) for match in event.matches]
        head += "" if body else " (nothing)"
    if event.events is not None:
        body = [event_text(inner, names, start).head for inner in event.events]
    if event.match is not None:
        before = f"{_row(event.prev, names)} -> " if event.prev is not None else ""
        head = f"{head} {before}{_row(event.match, names)}"
    return EventText(head=head, body=tuple(sorted(body)), notes=notes)


def _since(moment: datetime, start: datetime) -> str:
    return duration_to_text(moment - start)


def _row(match: Mapping[str, Any], names: Names) -> str:
    return " | ".join(render(value, names) for value in match.values())


def compare_events(
    expected: Sequence[EventText], found: Sequence[EventText], *, in_order: bool
) -> list[tuple[EventText | None, EventText | None]]:
    """Return pairs of events that differ. Without `in_order`, events of one commit may be swapped."""
    if not in_order:
        sizes = [len(list(group)) for _, group in groupby(found, key=_commit)]
        expected = [event for part in _split(expected, sizes) for event in sorted(part, key=_sort_key)]
        found = [event for part in _split(found, sizes) for event in sorted(part, key=_sort_key)]
    shared = min(len(expected), len(found))
    wrong: list[tuple[EventText | None, EventText | None]] = []
    wrong += [(e, f) for e, f in zip(expected, found, strict=False) if not e.matches(f)]
    wrong += [(event, None) for event in expected[shared:]]
    return wrong + [(None, event) for event in found[shared:]]


def _commit(event: EventText) -> tuple[bool, str]:
    """Return the key shared by events of one commit. The snapshot has its own; deliveries keep their order."""
    field = "position" if event.head.startswith("consumed") else "tick"
    return event.head.startswith("initial"), event.notes[field]


def _sort_key(event: EventText) -> tuple[str, tuple[str, ...]]:
    return event.head, event.body


def _split(events: Sequence[EventText], sizes: Iterable[int]) -> list[Sequence[EventText]]:
    """Split the events into parts of these sizes; the rest is the last part."""
    parts, at = [], 0
    for size in sizes:
        parts.append(events[at : at + size])
        at += size
    return [*parts, events[at:]]

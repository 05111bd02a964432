"""The last events that were handed out."""

from __future__ import annotations

from typing import Any

from vedette.watch.buffer import Entry
from vedette.watch.delta import Delta
from vedette.watch.recent import PastEvent, Recent

ONE: Any = "one watch"
OTHER: Any = "another"


def entry(position: int, delivery: tuple[str, int] | None = None) -> Entry:
    delta = Delta("consumed" if delivery else "added", {"large": "content"})
    delta.delivery = delivery
    return Entry(position, 7, position * 2, delta, at_ms=1_000 + position)


def test_it_keeps_what_can_be_asked_and_no_content() -> None:
    recent = Recent(10)
    recent.keep(ONE, [entry(1), entry(2, ("d1", 3))])
    assert list(recent) == [
        PastEvent(ONE, 1, 2, 1_001, "added", None),
        PastEvent(ONE, 2, 4, 1_002, "consumed", "d1"),
    ]


def test_the_oldest_go_first_and_whole() -> None:
    recent = Recent(3)
    recent.keep(ONE, [entry(1), entry(2)])
    recent.keep(OTHER, [entry(5), entry(6)])
    assert [(event.watch, event.position) for event in recent] == [(ONE, 2), (OTHER, 5), (OTHER, 6)]


def test_who_reads_is_not_disturbed_by_who_adds() -> None:
    recent = Recent(2)
    recent.keep(ONE, [entry(1), entry(2)])
    reading = iter(recent)
    recent.keep(ONE, [entry(3)])
    assert [event.position for event in reading] == [1, 2]
    assert list(Recent(5)) == []

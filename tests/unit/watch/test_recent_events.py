"""The last events that were handed out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import vedette
from vedette.watch.buffer import BufferedEvent
from vedette.watch.delta import Delta
from vedette.watch.recent_events import RecentEvent, RecentEvents
from vedette.watch.watch import Watch


@pytest.fixture
def watches() -> Iterator[tuple[Watch, Watch]]:
    with vedette.open(":memory:") as db:
        db.define("node Job { }")
        first, second = (db.session().watch("WATCH j: Job RETURN j")._watch for _ in range(2))
        yield first, second


def entry(position: int, delivery: tuple[str, int] | None = None) -> BufferedEvent:
    delta = Delta("consumed" if delivery else "added", {"large": "content"})
    delta.delivery = delivery
    return BufferedEvent(position, 7, position * 2, delta, detected_at_ms=1_000 + position)


def test_it_keeps_what_can_be_asked_and_no_content(watches: tuple[Watch, Watch]) -> None:
    one, _ = watches
    recent = RecentEvents(10)
    recent.add(one, [entry(1), entry(2, ("d1", 3))])
    assert list(recent) == [
        RecentEvent(one, 1, 2, 1_001, "added", None),
        RecentEvent(one, 2, 4, 1_002, "consumed", "d1"),
    ]


def test_the_oldest_go_first_and_whole(watches: tuple[Watch, Watch]) -> None:
    one, other = watches
    recent = RecentEvents(3)
    recent.add(one, [entry(1), entry(2)])
    recent.add(other, [entry(5), entry(6)])
    assert [(event.watch, event.position) for event in recent] == [(one, 2), (other, 5), (other, 6)]


def test_who_reads_is_not_disturbed_by_who_adds(watches: tuple[Watch, Watch]) -> None:
    one, _ = watches
    recent = RecentEvents(2)
    recent.add(one, [entry(1), entry(2)])
    reading = iter(recent)
    recent.add(one, [entry(3)])
    assert [event.position for event in reading] == [1, 2]
    assert list(RecentEvents(5)) == []

"""`ordering: attribute(…)` applies to buffered events, snapshots and windows, with every strategy."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import vedette
from vedette.engine.session.session import Session
from vedette.testing import ManualClock

BY_PRIORITY = "ordering: attribute(t.priority DESC, t.title ASC)"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def session(clock: ManualClock) -> Iterator[Session]:
    with vedette.open(":memory:", environment={}, clock=clock) as db:
        db.define("node Task { title: String, priority: Int?, due: Timestamp? }")
        yield db.session()


def spawn(session: Session, *titles: str) -> None:
    """The first letter is the title; the rest is the priority."""
    for title in titles:
        priority = int(title[1:]) if title[1:] else None
        due = session.database.clock.now() - timedelta(seconds=1)
        session.execute("SPAWN t: Task { title = $t, priority = $p, due = $d }", t=title, p=priority, d=due)


def received(events: Any) -> list[str]:
    return [event.match["t.title"] for event in events]


@pytest.mark.parametrize("condition", ["true", "t.due < now()"], ids=["incremental", "evaluated anew"])
def test_buffered_events_are_ordered(session: Session, condition: str) -> None:
    watch = session.watch(f"WATCH t: Task WHERE {condition} [{BY_PRIORITY}, initial: none] RETURN t.title")
    spawn(session, "a1", "b3", "c", "d2", "e3")
    assert received(watch.poll()) == ["c", "b3", "e3", "d2", "a1"]
    session.execute("MATCH t: Task KILL t")
    assert received(watch.poll()) == ["c", "b3", "e3", "d2", "a1"]


@pytest.mark.parametrize("condition", ["true", "t.due < now()"], ids=["incremental", "evaluated anew"])
def test_snapshot_is_ordered(session: Session, condition: str) -> None:
    spawn(session, "a1", "b3", "c", "d2", "e3")
    watch = session.watch(f"WATCH t: Task WHERE {condition} [{BY_PRIORITY}] RETURN t.title")
    (initial,) = watch.poll()
    assert [row["t.title"] for row in initial.matches or ()] == ["c", "b3", "e3", "d2", "a1"]


def test_window_events_are_ordered(session: Session, clock: ManualClock) -> None:
    watch = session.watch(
        f"WATCH t: Task [{BY_PRIORITY}, window: tumbling(1s), initial: none] RETURN t.title"
    )
    spawn(session, "a1", "b3")
    session.execute('MATCH t: Task WHERE t.title = "b3" SET t.priority = 0')
    session.execute('MATCH t: Task WHERE t.title = "b3" SET t.title = "b0"')
    clock.advance(1)
    (window,) = watch.poll()
    assert received(window.events) == ["b3", "a1", "b0"]
    assert [event.position for event in window.events or ()] == [1, 2, 3]


def test_event_keeps_its_detection_time(session: Session, clock: ManualClock) -> None:
    watch = session.watch("WATCH t: Task RETURN t.title")
    for seconds in (1, 2):
        clock.advance(seconds)
        spawn(session, "a")
    watch.poll(limit=1)
    rows = session.execute(
        "MATCH e: _WatchEvent RETURN e.event_type, e.created_at ORDER BY e.created_at"
    ).rows
    assert [(type, moment.second) for type, moment in rows] == [("initial", 0), ("added", 1), ("added", 3)]

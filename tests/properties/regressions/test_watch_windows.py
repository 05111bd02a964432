"""Windows: regressions found by `tests/properties/test_watch_windows.py`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import vedette
from vedette.engine.data_directory import Vedette
from vedette.engine.session.session import Session
from vedette.errors import VedetteError
from vedette.testing import ManualClock

ONTOLOGY = "node Task { title: String?, n: Int = 0, of: Int = 1 }"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def db(clock: ManualClock) -> Iterator[Vedette]:
    with vedette.open(":memory:", environment={}, clock=clock) as db:
        db.define(ONTOLOGY)
        yield db


@pytest.fixture
def session(db: Vedette) -> Session:
    return db.session()


def titles(event: Any) -> list[Any]:
    return [inner.match["t.title"] for inner in event.events]


def test_transaction_belongs_to_the_window_of_its_commit(session: Session, clock: ManualClock) -> None:
    watch = session.watch("WATCH t: Task [window: sliding(2s, 1s), initial: none] RETURN t.title")
    session.execute("BEGIN")
    session.execute('SPAWN t: Task { title = "begun long ago" }')
    clock.advance(60)
    session.execute("COMMIT")
    clock.advance(5)
    assert [(e.window_end.minute, e.window_end.second, titles(e)) for e in watch.poll() if e.window_end] == [
        (1, 1, ["begun long ago"]),
        (1, 2, ["begun long ago"]),
    ]


@pytest.mark.parametrize("aggregate", ["COUNT(*)", "COUNT(t)", "SUM(t.of)"])
def test_match_that_enters_by_a_range_condition_is_new_in_the_window(
    session: Session, clock: ManualClock, aggregate: str
) -> None:
    session.execute("SPAWN t: Task")
    watch = session.watch(f"WATCH t: Task WHERE t.n > 0 [window: sliding(5s, 5s)] RETURN {aggregate} AS c")
    clock.advance(5)
    session.execute("SET #t.n = 1")
    clock.advance(5)
    first, second = watch.poll()
    assert not first.to_dict()["matches"][0]["c"]
    assert second.match == {"c": 1}


def test_sliding_windows_over_reevaluated_queries(session: Session, clock: ManualClock) -> None:
    session.execute('SPAWN a: Task { title = "old" }')
    watch = session.watch("WATCH t: Task [window: sliding(5s, 5s)] RETURN COLLECT(t.title) AS titles")
    session.execute('SPAWN b: Task { title = "new" }')
    clock.advance(5)
    session.execute('SET #a.title = "repaired"')
    clock.advance(5)
    first, second = watch.poll()
    assert first.matches == ({"titles": ["new"]},)
    assert second.match == {"titles": ["repaired"]}


def test_match_with_equal_row_is_unchanged(session: Session, clock: ManualClock) -> None:
    session.execute("SPAWN a: Task")
    watch = session.watch("WATCH t: Task [window: sliding(5s, 5s)] RETURN SUM(t.n) AS total, COUNT(*) AS c")
    session.execute('SET #a.title = "unused"')
    clock.advance(5)
    assert [event.matches for event in watch.poll()] == [({"total": None, "c": 0},)]


def test_rejected_watch_has_no_windows(db: Vedette, session: Session) -> None:
    session.execute("SPAWN a: Task")
    with pytest.raises(VedetteError):
        session.watch("WATCH t: Task WHERE 1 / t.n > 0 [window: tumbling(5s)] RETURN t.title")
    assert not db.default.watching.windows.windowed_watches


# Restarts


class ReopenedDirectory:
    """A directory that is opened by one process after another."""

    def __init__(self, place: Path, clock: ManualClock) -> None:
        self._place, self._clock = place, clock
        self.db = self._open()
        self.db.define(ONTOLOGY)

    def _open(self) -> Vedette:
        return vedette.open(self._place, environment={}, clock=self._clock)

    def restart(self) -> Session:
        self.db.close()
        self.db = self._open()
        return self.db.session()


@pytest.fixture
def reopened_directory(tmp_path: Path, clock: ManualClock) -> Iterator[ReopenedDirectory]:
    made = ReopenedDirectory(tmp_path, clock)
    yield made
    made.db.close()


WATCH = "WATCH t: Task [window: {}, delivery: reliable, initial: none] RETURN t.title"


@pytest.mark.parametrize("window", ["tumbling(5s)", "sliding(5s, 5s)"])
def test_positions_are_not_reused_after_restart(
    reopened_directory: ReopenedDirectory, clock: ManualClock, window: str
) -> None:
    """A client that skips repeated events by position must not skip new ones."""
    session = reopened_directory.db.session()
    watch = session.watch(WATCH.format(window))
    session.execute('SPAWN a: Task { title = "a" }')
    clock.advance(5)
    assert [(event.position, titles(event)) for event in watch.poll()] == [(1, ["a"])]
    session.execute('SPAWN b: Task { title = "b" }')
    session = reopened_directory.restart()
    watch = session.attach(watch.id)
    clock.advance(5)
    assert [(event.position, titles(event)) for event in watch.poll()] == [(2, ["a", "b"])]


def test_sliding_windows_include_changes_before_a_restart(
    reopened_directory: ReopenedDirectory, clock: ManualClock
) -> None:
    session = reopened_directory.db.session()
    watch = session.watch(WATCH.format("sliding(2s, 1s)"))
    session.execute('SPAWN a: Task { title = "a" }')
    reopened_directory.db.close()
    clock.advance(3600)
    watch = reopened_directory.restart().attach(watch.id)
    clock.advance(1)
    assert [titles(event) for event in watch.poll()] == [["a"]]


@pytest.mark.parametrize("window", ["tumbling(10s)", "sliding(20s, 10s)"])
def test_window_evaluation_error_ends_the_watch(session: Session, clock: ManualClock, window: str) -> None:
    watch = session.watch(f"WATCH t: Task [window: {window}] RETURN SUM(1 / t.of) AS c")
    session.execute("SPAWN t: Task { of = 0 }")
    clock.advance(10)
    assert watch.status == "cancelled"
    assert [error.code for error in watch.errors()] == ["E2101"]


class SetClock(ManualClock):
    """Setting the wall clock does not change the length of a window."""

    leap = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.leap


@pytest.mark.parametrize("days", [-1, 30])
@pytest.mark.parametrize("window", ["tumbling(10s)", "sliding(20s, 10s)"])
def test_windows_ignore_wall_clock_changes(days: int, window: str) -> None:
    clock = SetClock()
    with vedette.open(":memory:", environment={}, clock=clock) as db, db.session() as session:
        db.define(ONTOLOGY)
        changes = session.watch(f"WATCH t: Task [window: {window}, initial: none] RETURN t.title")
        counts = session.watch(f"WATCH t: Task [window: {window}] RETURN COUNT(*) AS c")
        session.execute('SPAWN t: Task { title = "before" }')
        clock.advance(4)
        clock.leap = timedelta(days=days)
        session.execute('SPAWN t: Task { title = "after" }')
        clock.advance(6)
        (window_event,) = changes.poll()
        assert titles(window_event) == ["before", "after"]
        assert window_event.window_end == clock.now()
        clock.advance(30)
        session.execute('SPAWN t: Task { title = "later" }')
        clock.advance(10)
        assert titles(changes.poll()[-1]) == ["later"]
        ends = [event.window_end for event in counts.poll()]
        assert len(ends) == 5
        assert ends[-1] == clock.now()

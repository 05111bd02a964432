"""Windows: what the oracle of windows found, case by case (tests/properties/test_watch_windows.py)."""

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


def test_a_transaction_belongs_to_the_window_of_its_commit(session: Session, clock: ManualClock) -> None:
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
def test_a_match_that_enters_by_its_range_is_new_in_the_window(
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


def test_sliding_windows_of_what_is_evaluated_anew(session: Session, clock: ManualClock) -> None:
    session.execute('SPAWN a: Task { title = "old" }')
    watch = session.watch("WATCH t: Task [window: sliding(5s, 5s)] RETURN COLLECT(t.title) AS titles")
    session.execute('SPAWN b: Task { title = "new" }')
    clock.advance(5)
    session.execute('SET #a.title = "mended"')
    clock.advance(5)
    first, second = watch.poll()
    assert first.matches == ({"titles": ["new"]},)
    assert second.match == {"titles": ["mended"]}


def test_what_looks_as_before_has_not_changed(session: Session, clock: ManualClock) -> None:
    session.execute("SPAWN a: Task")
    watch = session.watch("WATCH t: Task [window: sliding(5s, 5s)] RETURN SUM(t.n) AS total, COUNT(*) AS c")
    session.execute('SET #a.title = "nobody asked for it"')
    clock.advance(5)
    assert [event.matches for event in watch.poll()] == [({"total": None, "c": 0},)]


def test_a_watch_that_was_refused_has_no_windows(db: Vedette, session: Session) -> None:
    session.execute("SPAWN a: Task")
    with pytest.raises(VedetteError):
        session.watch("WATCH t: Task WHERE 1 / t.n > 0 [window: tumbling(5s)] RETURN t.title")
    assert not db.default.watching.windows.windowed_watches


# Restarts


class Lives:
    """A directory that one process after the other works on."""

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
def lives(tmp_path: Path, clock: ManualClock) -> Iterator[Lives]:
    made = Lives(tmp_path, clock)
    yield made
    made.db.close()


WATCH = "WATCH t: Task [window: {}, delivery: reliable, initial: none] RETURN t.title"


@pytest.mark.parametrize("window", ["tumbling(5s)", "sliding(5s, 5s)"])
def test_positions_are_not_given_twice(lives: Lives, clock: ManualClock, window: str) -> None:
    """Who leaves out what it had by its position must not leave out anything else."""
    session = lives.db.session()
    watch = session.watch(WATCH.format(window))
    session.execute('SPAWN a: Task { title = "a" }')
    clock.advance(5)
    assert [(event.position, titles(event)) for event in watch.poll()] == [(1, ["a"])]
    session.execute('SPAWN b: Task { title = "b" }')
    session = lives.restart()
    watch = session.attach(watch.id)
    clock.advance(5)
    assert [(event.position, titles(event)) for event in watch.poll()] == [(2, ["a", "b"])]


def test_sliding_windows_have_what_the_restart_cut_off(lives: Lives, clock: ManualClock) -> None:
    session = lives.db.session()
    watch = session.watch(WATCH.format("sliding(2s, 1s)"))
    session.execute('SPAWN a: Task { title = "a" }')
    lives.db.close()
    clock.advance(3600)
    watch = lives.restart().attach(watch.id)
    clock.advance(1)
    assert [titles(event) for event in watch.poll()] == [["a"]]


@pytest.mark.parametrize("window", ["tumbling(10s)", "sliding(20s, 10s)"])
def test_a_window_that_cannot_be_computed_ends_its_watch_and_says_why(
    session: Session, clock: ManualClock, window: str
) -> None:
    watch = session.watch(f"WATCH t: Task [window: {window}] RETURN SUM(1 / t.of) AS c")
    session.execute("SPAWN t: Task { of = 0 }")
    clock.advance(10)
    assert watch.status == "cancelled"
    assert [error.code for error in watch.errors()] == ["E2101"]


class SetClock(ManualClock):
    """Somebody sets the time of day; spans are as long as before."""

    leap = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.leap


@pytest.mark.parametrize("days", [-1, 30])
@pytest.mark.parametrize("window", ["tumbling(10s)", "sliding(20s, 10s)"])
def test_windows_go_on_when_the_time_of_day_is_set(days: int, window: str) -> None:
    clock = SetClock()
    with vedette.open(":memory:", environment={}, clock=clock) as db, db.session() as session:
        db.define(ONTOLOGY)
        events = session.watch(f"WATCH t: Task [window: {window}, initial: none] RETURN t.title")
        counts = session.watch(f"WATCH t: Task [window: {window}] RETURN COUNT(*) AS c")
        session.execute('SPAWN t: Task { title = "before" }')
        clock.advance(4)
        clock.leap = timedelta(days=days)
        session.execute('SPAWN t: Task { title = "after" }')
        clock.advance(6)
        (told,) = events.poll()
        assert titles(told) == ["before", "after"]
        assert told.window_end == clock.now()
        clock.advance(30)
        session.execute('SPAWN t: Task { title = "later" }')
        clock.advance(10)
        assert titles(events.poll()[-1]) == ["later"]
        ends = [event.window_end for event in counts.poll()]
        assert len(ends) == 5
        assert ends[-1] == clock.now()

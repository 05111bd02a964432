"""deliver_on: tick waits for the tick that something belongs to and no other; where commits are ticks, for none."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import vedette
from vedette.engine.data_directory import Vedette
from vedette.testing import ManualClock

Open = Callable[[str], tuple[Vedette, ManualClock]]


@pytest.fixture
def opened() -> Iterator[Open]:
    homes: list[Vedette] = []

    def make(tick: str) -> tuple[Vedette, ManualClock]:
        clock = ManualClock()
        db = vedette.open(":memory:", clock=clock, settings=vedette.Settings(tick=tick), environment={})
        db.define("node Task { n: Int = 0 }")
        homes.append(db)
        return db, clock

    yield make
    for db in homes:
        db.close()


def numbers(handle: vedette.WatchHandle) -> list[int]:
    return [event.match["t.n"] for event in handle.poll() if event.match is not None]


def test_a_window_end_waits_for_no_commit_where_commits_are_ticks(opened: Open):
    db, clock = opened("commit")
    with db.session() as session:
        handle = session.watch("WATCH t: Task [deliver_on: tick, window: tumbling(5s)] RETURN COUNT(*) AS c")
        clock.advance(5)
        assert [event.type for event in handle.poll()] == ["initial"]


def test_nor_does_another_filter(opened: Open):
    db, _ = opened("commit")
    with db.session() as session:
        session.execute("SPAWN t: Task { n = 1 }")
        handle = session.watch("WATCH t: Task [deliver_on: tick, initial: none, filter: t.n > 5] RETURN t.n")
        handle.alter("[filter: t.n < 5]")
        assert numbers(handle) == [1]


@pytest.mark.parametrize("tick", ["commit", "manual"])
def test_what_is_worked_out_late_belongs_to_ticks_that_are_over(opened: Open, tick: str):
    db, _ = opened(tick)
    with db.session() as session:
        handle = session.watch(
            "WATCH t: Task [deliver_on: tick, delivery: reliable, buffer: 2, initial: none] RETURN t.n"
        )
        for n in range(9):
            session.execute("SPAWN t: Task { n = $n }", n=n)
        session.execute("TICK")
        found: list[int] = []
        while more := numbers(handle):
            found += more
        assert found == list(range(9))


@pytest.mark.parametrize("tick", ["commit", "manual"])
def test_a_job_given_back_waits_for_no_second_tick(opened: Open, tick: str):
    db, clock = opened(tick)
    with db.session() as session:
        handle = session.watch("WATCH t: Task [mode: consume, deliver_on: tick, ack_timeout: 10s] RETURN t.n")
        session.execute("SPAWN t: Task { n = 1 }")
        session.execute("TICK")
        handle.nack(handle.poll()[-1])
        (second,) = handle.poll()
        handle.nack(second, delay=5)
        clock.advance(5)
        (third,) = handle.poll()
        clock.advance(10)
        (fourth,) = handle.poll()
        assert [each.attributes["attempt"] for each in (second, third, fourth)] == [2, 3, 4]


def test_a_job_that_another_consumer_gives_back_still_waits_for_its_first_tick(opened: Open):
    db, _ = opened("manual")
    with db.session() as session:
        patient = session.watch("WATCH t: Task [mode: consume, deliver_on: tick, initial: none] RETURN t.n")
        hasty = session.watch("WATCH t: Task [mode: consume, initial: none] RETURN t.n")
        session.execute("SPAWN t: Task { n = 1 }")
        (event,) = hasty.poll()
        hasty.nack(event)
        assert numbers(patient) == []
        session.execute("TICK")
        assert numbers(patient) == [1]

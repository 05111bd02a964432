"""deliver_on: tick waits for the tick of an event only; with automatic ticks it does not wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import vedette
from vedette.engine.data_directory import Vedette
from vedette.testing import ManualClock

Open = Callable[[str], tuple[Vedette, ManualClock]]


@pytest.fixture
def opened() -> Iterator[Open]:
    instances: list[Vedette] = []

    def make(tick: str) -> tuple[Vedette, ManualClock]:
        clock = ManualClock()
        db = vedette.open(":memory:", clock=clock, settings=vedette.Settings(tick=tick), environment={})
        db.define("node Task { n: Int = 0 }")
        instances.append(db)
        return db, clock

    yield make
    for db in instances:
        db.close()


def numbers(handle: vedette.WatchHandle) -> list[int]:
    return [event.match["t.n"] for event in handle.poll() if event.match is not None]


def test_window_end_needs_no_commit_with_automatic_ticks(opened: Open):
    db, clock = opened("commit")
    with db.session() as session:
        handle = session.watch("WATCH t: Task [deliver_on: tick, window: tumbling(5s)] RETURN COUNT(*) AS c")
        clock.advance(5)
        assert [event.type for event in handle.poll()] == ["initial"]


def test_filter_change_needs_no_commit_with_automatic_ticks(opened: Open):
    db, _ = opened("commit")
    with db.session() as session:
        session.execute("SPAWN t: Task { n = 1 }")
        handle = session.watch("WATCH t: Task [deliver_on: tick, initial: none, filter: t.n > 5] RETURN t.n")
        handle.alter("[filter: t.n < 5]")
        assert numbers(handle) == [1]


@pytest.mark.parametrize("tick", ["commit", "manual"])
def test_caught_up_events_belong_to_past_ticks(opened: Open, tick: str):
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
def test_requeued_job_waits_for_no_second_tick(opened: Open, tick: str):
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


def test_job_requeued_by_another_consumer_waits_for_its_first_tick(opened: Open):
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

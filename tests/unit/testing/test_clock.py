"""`ManualClock` moves only when advanced, and runs due callbacks in order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from vedette.testing import ManualClock

START = datetime(2024, 1, 1, tzinfo=UTC)


def test_time_is_constant_until_advanced():
    clock = ManualClock()
    assert (clock.now(), clock.monotonic()) == (START, 0.0)
    assert (clock.now(), clock.monotonic()) == (START, 0.0)
    clock.advance(1.5)
    assert (clock.now(), clock.monotonic()) == (START + timedelta(seconds=1.5), 1.5)


def test_start_is_converted_to_utc_and_whole_milliseconds():
    clock = ManualClock(datetime(2020, 1, 1, 2, 0, 0, 1999, tzinfo=timezone(timedelta(hours=2))))
    assert clock.now() == datetime(2020, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)
    with pytest.raises(ValueError, match="time zone"):
        ManualClock(datetime(2020, 1, 1))  # noqa: DTZ001 - what must be refused


def test_many_small_steps_do_not_drift():
    clock = ManualClock()
    for _ in range(1000):
        clock.advance(0.001)
    assert clock.now() == START + timedelta(seconds=1)


def test_negative_advance_is_rejected():
    with pytest.raises(ValueError, match="negative"):
        ManualClock().advance(-1)


def test_due_callbacks_run_in_order_at_their_due_time():
    clock = ManualClock()
    seen: list[tuple[str, float]] = []
    clock.call_at(3.0, lambda: seen.append(("third", clock.monotonic())))
    clock.call_at(1.0, lambda: seen.append(("first", clock.monotonic())))
    clock.call_at(1.0, lambda: seen.append(("second", clock.monotonic())))
    clock.call_later(9.0, lambda: seen.append(("later", clock.monotonic())))
    clock.advance(5.0)
    assert seen == [("first", 1.0), ("second", 1.0), ("third", 3.0)]
    assert clock.monotonic() == 5.0


def test_cancelled_timer_does_not_run():
    clock = ManualClock()
    seen: list[str] = []
    clock.call_later(1.0, lambda: seen.append("no")).cancel()
    clock.advance(2.0)
    assert seen == []


def test_timer_set_by_callback_runs_in_same_advance_if_due():
    clock = ManualClock()
    ticks: list[float] = []

    def tick() -> None:
        ticks.append(clock.monotonic())
        clock.call_later(1.0, tick)

    clock.call_later(1.0, tick)
    clock.advance(3.5)
    assert ticks == [1.0, 2.0, 3.0]


def test_timer_in_the_past_runs_at_next_advance():
    clock = ManualClock()
    clock.advance(5.0)
    seen: list[float] = []
    clock.call_at(1.0, lambda: seen.append(clock.monotonic()))
    clock.advance(0.0)
    assert seen == [5.0]

"""`SystemClock` runs timers in order unless they are cancelled; its thread exists only while there are timers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue

import pytest

from tests.support.waiting import TIMEOUT_SECONDS
from vedette.clock import SystemClock


def keepers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "vedette-clock"]


@contextmanager
def held(clock: SystemClock) -> Iterator[None]:
    """Keep the thread of the clock busy during the block, so that no timer runs in it."""
    begun, free = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        free.wait(TIMEOUT_SECONDS)

    clock.call_at(clock.monotonic(), hold)
    assert begun.wait(TIMEOUT_SECONDS)
    yield
    free.set()


def test_timers_run_in_the_order_of_their_due_times() -> None:
    clock, calls = SystemClock(), SimpleQueue[int]()
    with held(clock):
        now = clock.monotonic()
        for number in (3, 1, 2):
            clock.call_at(now + number / 100, partial(calls.put, number))
        clock.call_at(now - 1, lambda: calls.put(0))
    assert [calls.get(timeout=TIMEOUT_SECONDS) for _ in range(4)] == [0, 1, 2, 3]
    assert clock.monotonic() >= now + 0.03


def test_cancelled_timer_is_neither_called_nor_referenced() -> None:
    clock, calls = SystemClock(), SimpleQueue[str]()
    now = clock.monotonic()
    late = clock.call_at(now + 3_600, lambda: calls.put("late"))
    with held(clock):
        soon = clock.call_at(now + 0.02, lambda: calls.put("soon"))
        clock.call_at(now + 0.03, lambda: calls.put("kept"))
        soon.cancel()
        soon.cancel()
    assert calls.get(timeout=TIMEOUT_SECONDS) == "kept"
    late.cancel()
    assert calls.empty()


def test_thread_ends_with_the_last_timer() -> None:
    before = set(keepers())
    clock, calls = SystemClock(), SimpleQueue[int]()
    for number in range(3):  # a new thread starts with the next timer
        far = clock.call_at(clock.monotonic() + 3_600, lambda: None)
        (keeper,) = set(keepers()) - before
        clock.call_at(clock.monotonic(), partial(calls.put, number))
        assert calls.get(timeout=TIMEOUT_SECONDS) == number
        far.cancel()
        keeper.join(TIMEOUT_SECONDS)
        assert not keeper.is_alive()


def test_failing_timer_does_not_affect_others(caplog: pytest.LogCaptureFixture) -> None:
    clock, calls = SystemClock(), SimpleQueue[int]()

    def fail() -> None:
        raise RuntimeError("this one")

    with caplog.at_level(logging.ERROR):
        clock.call_at(clock.monotonic(), fail)
        clock.call_at(clock.monotonic() + 0.01, lambda: calls.put(1))
        assert calls.get(timeout=TIMEOUT_SECONDS) == 1
    assert "this one" in caplog.text


def test_timer_may_schedule_the_next() -> None:
    clock, calls = SystemClock(), SimpleQueue[int]()

    def again(number: int) -> None:
        calls.put(number)
        if number < 3:
            clock.call_at(clock.monotonic(), lambda: again(number + 1))

    clock.call_at(clock.monotonic(), lambda: again(0))
    assert [calls.get(timeout=TIMEOUT_SECONDS) for _ in range(4)] == [0, 1, 2, 3]


def test_cancelled_timers_are_discarded_before_they_are_due() -> None:
    clock = SystemClock()
    kept = clock.call_at(clock.monotonic() + 3600, lambda: None)
    for _ in range(5000):
        clock.call_at(clock.monotonic() + 1e9, lambda: None).cancel()
    assert len(clock._appointments) < 1000
    rung: SimpleQueue[str] = SimpleQueue()
    clock.call_at(clock.monotonic(), lambda: rung.put("due"))
    assert rung.get(timeout=60) == "due"
    kept.cancel()

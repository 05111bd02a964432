"""The machine's own clock keeps appointments: in order, unless cancelled, with a thread only while there are any."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue

import pytest

from tests.support.databases import PATIENCE
from vedette.clock import SystemClock


def keepers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "vedette-clock"]


@contextmanager
def held(clock: SystemClock) -> Iterator[None]:
    """Keep the thread of the clock busy during the block, so that no appointment runs in it."""
    begun, free = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        free.wait(PATIENCE)

    clock.call_at(clock.monotonic(), hold)
    assert begun.wait(PATIENCE)
    yield
    free.set()


def test_appointments_are_kept_in_the_order_of_their_moments() -> None:
    clock, calls = SystemClock(), SimpleQueue[int]()
    with held(clock):
        now = clock.monotonic()
        for number in (3, 1, 2):
            clock.call_at(now + number / 100, partial(calls.put, number))
        clock.call_at(now - 1, lambda: calls.put(0))
    assert [calls.get(timeout=PATIENCE) for _ in range(4)] == [0, 1, 2, 3]
    assert clock.monotonic() >= now + 0.03


def test_what_is_cancelled_is_not_called_and_not_held() -> None:
    clock, calls = SystemClock(), SimpleQueue[str]()
    now = clock.monotonic()
    late = clock.call_at(now + 3_600, lambda: calls.put("late"))
    with held(clock):
        soon = clock.call_at(now + 0.02, lambda: calls.put("soon"))
        clock.call_at(now + 0.03, lambda: calls.put("kept"))
        soon.cancel()
        soon.cancel()
    assert calls.get(timeout=PATIENCE) == "kept"
    late.cancel()
    assert calls.empty()


def test_the_thread_ends_with_the_last_appointment() -> None:
    before = set(keepers())
    clock, calls = SystemClock(), SimpleQueue[int]()
    for number in range(3):  # and comes again with the next
        far = clock.call_at(clock.monotonic() + 3_600, lambda: None)
        (keeper,) = set(keepers()) - before
        clock.call_at(clock.monotonic(), partial(calls.put, number))
        assert calls.get(timeout=PATIENCE) == number
        far.cancel()
        keeper.join(PATIENCE)
        assert not keeper.is_alive()


def test_an_appointment_that_fails_does_not_end_the_others(caplog: pytest.LogCaptureFixture) -> None:
    clock, calls = SystemClock(), SimpleQueue[int]()

    def fail() -> None:
        raise RuntimeError("this one")

    with caplog.at_level(logging.ERROR):
        clock.call_at(clock.monotonic(), fail)
        clock.call_at(clock.monotonic() + 0.01, lambda: calls.put(1))
        assert calls.get(timeout=PATIENCE) == 1
    assert "this one" in caplog.text


def test_an_appointment_may_make_the_next() -> None:
    clock, calls = SystemClock(), SimpleQueue[int]()

    def again(number: int) -> None:
        calls.put(number)
        if number < 3:
            clock.call_at(clock.monotonic(), lambda: again(number + 1))

    clock.call_at(clock.monotonic(), lambda: again(0))
    assert [calls.get(timeout=PATIENCE) for _ in range(4)] == [0, 1, 2, 3]


def test_appointments_that_were_cancelled_are_not_kept_until_their_day() -> None:
    clock = SystemClock()
    kept = clock.call_at(clock.monotonic() + 3600, lambda: None)
    for _ in range(5000):
        clock.call_at(clock.monotonic() + 1e9, lambda: None).cancel()
    assert len(clock._appointments) < 1000
    rung: SimpleQueue[str] = SimpleQueue()
    clock.call_at(clock.monotonic(), lambda: rung.put("due"))
    assert rung.get(timeout=60) == "due"
    kept.cancel()

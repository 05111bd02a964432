"""Windows of one watch: which events belong to which window, and clocks that are set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from vedette.watch.delta import ADDED, Delta
from vedette.watch.options import WindowSpec
from vedette.watch.windows import WindowState

START = datetime(2026, 1, 1, tzinfo=UTC)
TUMBLING = WindowSpec("tumbling", timedelta(seconds=10), timedelta(seconds=10))
SLIDING = WindowSpec("sliding", timedelta(seconds=10), timedelta(seconds=2))


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def event(name: str) -> Delta:
    return Delta(ADDED, {"name": name}, None, name)


def collected(state: WindowState) -> list[str]:
    _, _, events = state.close()
    state.validate()
    return [delta.identity for _, delta in events]


def test_the_end_of_a_tumbling_window_belongs_to_the_next_one() -> None:
    state = WindowState(TUMBLING, START)
    for name, seconds in (("first", 0), ("last", 9.999), ("next", 10)):
        state.collect(event(name), 1, at(seconds))
    assert collected(state) == ["first", "last"]
    assert state.end == at(20)
    assert collected(state) == ["next"]
    assert not state.holds


def test_a_sliding_window_repeats_events_until_they_leave_it() -> None:
    state = WindowState(SLIDING, START)
    state.collect(event("a"), 1, at(1))
    assert [collected(state) for _ in range(6)] == [["a"]] * 5 + [[]]


def test_the_bounds_of_a_window() -> None:
    state = WindowState(SLIDING, START)
    start, end, _ = state.close()
    assert (start, end) == (at(-8), at(2))


def test_changed_matches_of_a_sliding_window() -> None:
    state = WindowState(SLIDING, START)
    state.touch("a", at(0))
    state.end = at(10)
    assert state.recent() == {"a"}
    state.end = at(12)
    assert state.recent() == set()


def test_times_never_decrease() -> None:
    """A transaction with an earlier time may commit later."""
    state = WindowState(TUMBLING, START)
    state.collect(event("a"), 1, at(5))
    state.collect(event("b"), 1, at(3))
    state.validate()
    assert collected(state) == ["a", "b"]


@pytest.mark.parametrize("shift", [timedelta(hours=1), -timedelta(hours=1)])
def test_windows_follow_a_clock_that_is_set(shift: timedelta) -> None:
    state = WindowState(TUMBLING, START)
    state.due = 10.0
    state.collect(event("a"), 1, at(2))
    state.follow(at(5) + shift, monotonic=5.0)
    assert state.end == at(10) + shift
    assert collected(state) == ["a"]


def test_small_clock_deviations_are_ignored() -> None:
    state = WindowState(TUMBLING, START)
    state.due = 10.0
    state.follow(at(5.5), monotonic=5.0)
    assert state.end == at(10)


def test_an_exported_state_continues() -> None:
    state = WindowState(TUMBLING, START)
    state.collect(event("a"), 7, at(2))
    state.touch("m", at(3))
    copy = WindowState(TUMBLING, at(1))
    copy.import_state(state.export_state())
    assert copy.export_state() == state.export_state()
    assert collected(copy) == ["a"]

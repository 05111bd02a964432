"""Paths wait until it is quiet, not for ever, and are never dropped."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vedette.sources.files.pending import PendingPaths


def test_a_path_is_due_when_it_is_quiet() -> None:
    pending = PendingPaths(2.0)
    pending.note("a", 0.0)
    pending.note("b", 1.0)
    pending.note("a", 1.5)
    assert pending.due(2.9) == []
    assert pending.due(3.0) == ["b"]
    assert pending.due(3.5) == ["a"]
    assert pending.due(99.0) == []


def test_a_path_that_is_never_quiet_is_looked_at_all_the_same() -> None:
    pending = PendingPaths(2.0)
    due = []
    for tick in range(100):
        pending.note("log", tick * 0.5)
        due += [tick * 0.5] * len(pending.due(tick * 0.5))
    assert due == [20.0, 40.5], "after ten debounces"


def test_load_stretches_the_wait() -> None:
    pending = PendingPaths(2.0)
    pending.note("a", 0.0)
    assert pending.due(7.9, stretch=4.0) == []
    assert pending.due(8.0, stretch=4.0) == ["a"]


@given(st.lists(st.tuples(st.integers(0, 30).map(str), st.floats(0, 3)), max_size=80), st.integers(1, 20))
def test_every_path_comes_out_or_a_rescan_does(notes: list[tuple[str, float]], most: int) -> None:
    pending, now = PendingPaths(1.0, most), 0.0
    waiting: set[str] = set()
    for path, wait in notes:
        now += wait
        pending.note(path, now)
        waiting.add(path)
        waiting -= set(pending.due(now))
        if pending.take_rescan(now):
            waiting.clear()
        assert len(pending) <= most
    now += 2.0
    if pending.take_rescan(now):
        waiting.clear()
    assert waiting <= set(pending.due(now))
    assert len(pending) == 0

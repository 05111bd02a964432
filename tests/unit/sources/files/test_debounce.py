"""Paths wait until it is quiet, not for ever, and are never dropped."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from vedette.sources.files.debounce import DebouncedPaths


def test_the_first_word_of_a_path_is_followed_up_soon() -> None:
    pending = DebouncedPaths(2.0)
    pending.add("a", 0.0)
    pending.add("a", 0.03)
    assert pending.take_due(0.06) == []
    assert pending.take_due(0.08) == ["a"]
    pending.add("a", 0.2)
    pending.add("b", 0.2)
    assert pending.take_due(0.31) == ["b"]


def test_a_path_that_was_just_looked_at_waits_until_it_is_quiet() -> None:
    pending = DebouncedPaths(2.0)
    pending.add("a", 0.0)
    assert pending.take_due(0.5) == ["a"]
    for moment in (0.6, 1.0, 2.0):
        pending.add("a", moment)
    assert pending.take_due(3.9) == []
    assert pending.take_due(4.0) == ["a"]
    assert pending.take_due(99.0) == []
    pending.add("a", 100.0)
    assert pending.take_due(100.2) == ["a"], "it was quiet for long: this is a first word again"


def test_a_path_that_is_never_quiet_is_looked_at_once_in_a_while() -> None:
    pending = DebouncedPaths(2.0)
    due = []
    for tick in range(2_600):
        now = tick / 40
        pending.add("log", now)
        due += [now] * len(pending.take_due(now))
    gaps = [later - earlier for earlier, later in pairwise(due)]
    assert due[0] == 2.0, "its first words come so fast that it is not quiet even for a moment"
    assert gaps
    assert all(19.9 <= gap <= 20.1 for gap in gaps), "after ten debounces"


def test_load_stretches_the_waits() -> None:
    pending = DebouncedPaths(2.0)
    pending.add("a", 0.0)
    assert pending.take_due(0.15, multiplier=4.0) == []
    assert pending.take_due(0.16, multiplier=4.0) == ["a"]
    pending.add("a", 0.5)
    assert pending.take_due(8.4, multiplier=4.0) == []
    assert pending.take_due(8.5, multiplier=4.0) == ["a"]


def _left(waiting: set[str], heard: set[str] | None) -> set[str]:
    """What a rescan does not begin with."""
    return waiting if heard is None else {path for path in waiting if path.rpartition("/")[0] not in heard}


@given(
    st.lists(st.tuples(st.from_regex("[ab]/[0-9]|[0-9]", fullmatch=True), st.floats(0, 3)), max_size=80),
    st.integers(3, 20),
)
def test_every_path_comes_out_or_its_folder_with_a_rescan(notes: list[tuple[str, float]], most: int) -> None:
    pending, now = DebouncedPaths(1.0, most), 0.0
    waiting: set[str] = set()
    for path, wait in notes:
        now += wait
        pending.add(path, now)
        waiting.add(path)
        waiting -= set(pending.take_due(now))
        waiting = _left(waiting, pending.take_rescan(now))
        assert len(pending) <= most
    now += 2.0
    waiting = _left(waiting, pending.take_rescan(now))
    assert waiting <= set(pending.take_due(now))
    assert len(pending) == 0


def test_a_rescan_begins_where_something_was_heard() -> None:
    pending = DebouncedPaths(1.0)
    for path in ("a/b/x", "a/b/y", "top", "elsewhere/z"):
        pending.add(path, 0.0)
    pending.request_rescan(0.0, ["a/b/x", "top"])
    assert pending.take_rescan(0.5) is None
    assert pending.take_rescan(1.0) == {"a/b", ""}
    assert pending.take_due(1.0) == ["elsewhere/z"], "the others are looked at by the rescan"
    assert pending.take_rescan(9.0) is None


def test_folders_that_were_heard_of_are_bounded() -> None:
    pending = DebouncedPaths(1.0, most_paths=3)
    pending.request_rescan(0.0, [f"{number}/x" for number in range(4)])
    assert pending.take_rescan(1.0) == set(), "it finds them by what it is left with"

"""Pending paths are debounced, checked within a bounded time, and never dropped."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from vedette.sources.files.debounce import DebouncedPaths


def test_first_notification_of_a_path_is_due_soon() -> None:
    pending = DebouncedPaths(2.0)
    pending.add("a", 0.0)
    pending.add("a", 0.03)
    assert pending.take_due(0.06) == []
    assert pending.take_due(0.08) == ["a"]
    pending.add("a", 0.2)
    pending.add("b", 0.2)
    assert pending.take_due(0.31) == ["b"]


def test_recently_checked_path_waits_until_it_is_quiet() -> None:
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


def test_busy_path_is_checked_from_time_to_time() -> None:
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


def test_load_prolongs_delays() -> None:
    pending = DebouncedPaths(2.0)
    pending.add("a", 0.0)
    assert pending.take_due(0.15, multiplier=4.0) == []
    assert pending.take_due(0.16, multiplier=4.0) == ["a"]
    pending.add("a", 0.5)
    assert pending.take_due(8.4, multiplier=4.0) == []
    assert pending.take_due(8.5, multiplier=4.0) == ["a"]


def _left(pending_paths: set[str], notified_folders: set[str] | None) -> set[str]:
    """Return the paths that a rescan does not cover."""
    return (
        pending_paths
        if notified_folders is None
        else {path for path in pending_paths if path.rpartition("/")[0] not in notified_folders}
    )


@given(
    st.lists(st.tuples(st.from_regex("[ab]/[0-9]|[0-9]", fullmatch=True), st.floats(0, 3)), max_size=80),
    st.integers(3, 20),
)
def test_every_path_is_returned_or_covered_by_a_rescan(notes: list[tuple[str, float]], most: int) -> None:
    pending, now = DebouncedPaths(1.0, most), 0.0
    pending_paths: set[str] = set()
    for path, wait in notes:
        now += wait
        pending.add(path, now)
        pending_paths.add(path)
        pending_paths -= set(pending.take_due(now))
        pending_paths = _left(pending_paths, pending.take_rescan(now))
        assert len(pending) <= most
    now += 2.0
    pending_paths = _left(pending_paths, pending.take_rescan(now))
    assert pending_paths <= set(pending.take_due(now))
    assert len(pending) == 0


def test_rescan_returns_the_notified_folders() -> None:
    pending = DebouncedPaths(1.0)
    for path in ("a/b/x", "a/b/y", "top", "elsewhere/z"):
        pending.add(path, 0.0)
    pending.request_rescan(0.0, ["a/b/x", "top"])
    assert pending.take_rescan(0.5) is None
    assert pending.take_rescan(1.0) == {"a/b", ""}
    assert pending.take_due(1.0) == ["elsewhere/z"], "the others are looked at by the rescan"
    assert pending.take_rescan(9.0) is None


def test_number_of_notified_folders_is_limited() -> None:
    pending = DebouncedPaths(1.0, most_paths=3)
    pending.request_rescan(0.0, [f"{number}/x" for number in range(4)])
    assert pending.take_rescan(1.0) == set(), "it finds them by what it is left with"

"""Entries of a queue while many are added and removed."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.queue.entry import QueueEntry
from vedette.queue.group import ConsumerGroup
from vedette.queue.match_queue import MatchQueue

SLACK_ENTRIES = 600
"""More than one compaction examines."""


@given(seed=st.integers(0, 1 << 32), leaving=st.floats(0.2, 0.8))
def test_entries_after_random_additions_and_removals(seed: int, leaving: float) -> None:
    """The list stays within about twice the largest number of present entries."""
    random = Random(seed)
    queue = _queue()
    present: list[QueueEntry] = []
    largest = arrivals = 0
    for step in range(2 * SLACK_ENTRIES):
        if present and random.random() < leaving:
            queue.drop_entry(present.pop(random.randrange(len(present))))
        else:
            arrivals += 1
            entry = queue.add_entry(f"j{arrivals}", arrivals)
            queue.set_match(entry, None)
            present.append(entry)
            largest = max(largest, len(present))
        if step % 50 == 0:
            assert queue.entries == present
        assert len(queue._entries) <= 2 * largest + SLACK_ENTRIES
    assert queue.entries == present


@pytest.mark.parametrize("order", ["oldest first", "newest first", "random"])
def test_removed_entries_are_compacted(order: str) -> None:
    queue, entry_count = _queue(), 20_000
    entries = [queue.add_entry(f"j{number}", number) for number in range(entry_count)]
    for entry in entries:
        queue.set_match(entry, None)
    if order == "newest first":
        entries.reverse()
    elif order == "random":
        Random(7).shuffle(entries)
    for number, entry in enumerate(entries, 1):
        queue.drop_entry(entry)
        if number % 100 == 0:
            kept = sum(each is not None for each in queue._entries)
            assert kept <= 2.5 * (entry_count - number) + SLACK_ENTRIES
    assert queue._entries == []


def _queue() -> MatchQueue:
    return MatchQueue(ConsumerGroup("workers", "workers"), serialized=False, feed=None)

"""Who is in a pool, while many come and go."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.queue.entry import QueueEntry
from vedette.queue.match_queue import ConsumerGroup, MatchQueue

FEW = 600
"""More than a pool closes up at once."""


@given(seed=st.integers(0, 1 << 32), leaving=st.floats(0.2, 0.8))
def test_places_are_those_who_came_and_did_not_go(seed: int, leaving: float) -> None:
    """And what is kept of the others is no more than about as many as were ever there at once."""
    random = Random(seed)
    pool = _pool()
    there: list[QueueEntry] = []
    most = arrivals = 0
    for step in range(2 * FEW):
        if there and random.random() < leaving:
            pool.drop_entry(there.pop(random.randrange(len(there))))
        else:
            arrivals += 1
            place = pool.add_entry(f"j{arrivals}", arrivals)
            pool.set_match(place, None)
            there.append(place)
            most = max(most, len(there))
        if step % 50 == 0:
            assert pool.entries == there
        assert len(pool._entries) <= 2 * most + FEW
    assert pool.entries == there


@pytest.mark.parametrize("order", ["as they came", "the last first", "any"])
def test_what_is_kept_of_those_who_went_shrinks_with_those_who_are_there(order: str) -> None:
    pool, many = _pool(), 20_000
    places = [pool.add_entry(f"j{number}", number) for number in range(many)]
    for place in places:
        pool.set_match(place, None)
    if order == "the last first":
        places.reverse()
    elif order == "any":
        Random(7).shuffle(places)
    for number, place in enumerate(places, 1):
        pool.drop_entry(place)
        if number % 100 == 0:
            kept = sum(each is not None for each in pool._entries)
            assert kept <= 2.5 * (many - number) + FEW
    assert pool._entries == []


def _pool() -> MatchQueue:
    return MatchQueue(ConsumerGroup("workers", "workers"), serialized=False, source=None)

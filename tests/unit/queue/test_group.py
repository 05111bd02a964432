"""Fair shares of consumers and blocked keys of groups."""

from __future__ import annotations

import pytest

from vedette.queue.entry import QueuedMatch
from vedette.queue.group import Consumer, ConsumerGroup
from vedette.queue.match_queue import MatchQueue


def group_with(
    *in_flight: int, waiting: int, buffer: int = 100, max_in_flight: int | None = None
) -> ConsumerGroup:
    """Return a group with one consumer per number of open deliveries, and `waiting` entries in its queue."""
    group = ConsumerGroup("g", "g")
    queue = MatchQueue(group, serialized=False, feed=None)
    for number, held in enumerate(in_flight):
        consumer = Consumer(number, group, bound=buffer, group_bound=max_in_flight, watch=None)
        consumer.queue = queue
        consumer.deliveries = dict.fromkeys(f"d{number}_{each}" for each in range(held))  # type: ignore[assignment]
        group.consumers.append(consumer)
    group.in_flight = sum(in_flight)
    for number in range(waiting):
        entry = queue.add_entry(f"e{number}", number)
        entry.set_match(QueuedMatch((entry.element,), {}, (), None))
        queue.enqueue(entry)
    queue.admit_durable(0)
    return group


@pytest.mark.parametrize(
    ("in_flight", "waiting", "limit", "share"),
    [
        ((0,), 10, None, 10),
        ((0,), 10, 3, 3),
        ((0, 0), 10, None, 5),
        ((4, 0), 6, None, 1),
        ((0, 4), 6, None, 5),
        ((0, 0, 0), 1, None, 1),
    ],
)
def test_fair_share(in_flight: tuple[int, ...], waiting: int, limit: int | None, share: int) -> None:
    assert group_with(*in_flight, waiting=waiting).consumers[0].fair_share(limit) == share


def test_fair_share_stays_within_buffer_and_max_in_flight() -> None:
    assert group_with(2, waiting=10, buffer=3).consumers[0].fair_share(None) == 1
    assert group_with(3, waiting=10, buffer=3).consumers[0].fair_share(None) == 0
    assert group_with(1, 1, waiting=10, max_in_flight=3).consumers[0].fair_share(None) == 1


def test_an_inactive_consumer_receives_nothing_and_leaves_its_share_to_others() -> None:
    group = group_with(0, 0, waiting=10)
    group.consumers[1].active = False
    assert [consumer.fair_share(None) for consumer in group.consumers] == [10, 0]


def test_a_key_is_blocked_until_every_holder_unblocks_it() -> None:
    group = ConsumerGroup("g", "g")
    group.block_key("k")
    group.block_key("k")
    group.unblock_key("k")
    assert group.is_key_blocked("k")
    group.unblock_key("k")
    assert not group.is_key_blocked("k")

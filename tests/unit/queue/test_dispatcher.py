"""The dispatcher: delivery states, claims, blocked keys, deadlines and fair shares."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, product
from typing import Any

import pytest

from vedette.queue.delivery import TRANSITIONS, Attempts, DeliveryEvent, DeliveryState
from vedette.queue.dispatcher import Dispatcher
from vedette.queue.entry import Delivery, QueuedMatch
from vedette.queue.group import Consumer
from vedette.queue.match_queue import MatchQueue

S, E = DeliveryState, DeliveryEvent
EXPECTED = {
    (S.PENDING, E.ENLIST): S.ENLISTED,
    (S.PENDING, E.REQUEUE): S.REQUEUED,
    (S.PENDING, E.PARK): S.PARKED,
    (S.ENLISTED, E.COMMIT): S.DONE,
    (S.ENLISTED, E.ROLLBACK): S.PENDING,
    (S.ENLISTED, E.REQUEUE): S.REQUEUED,
    (S.ENLISTED, E.PARK): S.PARKED,
}
EVENTS_TO_REACH: dict[DeliveryState, list[DeliveryEvent]] = {
    S.PENDING: [],
    S.ENLISTED: [E.ENLIST],
    S.DONE: [E.ENLIST, E.COMMIT],
    S.REQUEUED: [E.REQUEUE],
    S.PARKED: [E.PARK],
}
"""Events that bring a pending delivery into each state."""


class QueueFixture:
    """A dispatcher with one queue and one consumer; `join` adds more of them."""

    def __init__(self, *, serialized: bool = False, bound: int = 10) -> None:
        ids = count(1)
        self.dispatcher = Dispatcher(lambda: f"d_{next(ids)}", lambda ms: ms / 1000)
        self.numbers = count(1)
        self.serialized, self.bound = serialized, bound
        self.consumer = self.join("g")
        self.queue = self.consumer.queue

    def join(self, name: str, queue: MatchQueue | None = None, group_bound: int | None = None) -> Consumer:
        group = self.dispatcher.group(name, name)
        consumer = Consumer(next(self.numbers), group, bound=self.bound, group_bound=group_bound, watch=None)
        if queue is None:
            queue = MatchQueue(group, serialized=self.serialized, feed=None)
        self.dispatcher.add_consumer(consumer, queue)
        return consumer

    def add(self, element: str, rank: int = 0, key: Any = None, queue: MatchQueue | None = None) -> None:
        match = QueuedMatch((element,), {}, (rank,), key)
        target = self.queue if queue is None else queue
        assert target is not None
        self.dispatcher.add_match(target, element, match, sequence=0, tick=0, now=0.0)

    def take(
        self, limit: int | None = None, consumer: Consumer | None = None, now: float = 0.0
    ) -> list[Delivery]:
        return self.dispatcher.deliver(consumer or self.consumer, limit, durable=0, now=now, lease=30.0)

    def check(self) -> None:
        self.dispatcher.validate(
            [queue for group in self.dispatcher.groups.values() for queue in group.queues]
        )


# States


@pytest.mark.parametrize(("state", "event"), list(product(DeliveryState, DeliveryEvent)))
def test_every_event_in_every_state(state: DeliveryState, event: DeliveryEvent) -> None:
    queues = QueueFixture()
    queues.add("a")
    (delivery,) = queues.take()
    for step in EVENTS_TO_REACH[state]:
        assert delivery.apply(step)
    assert delivery.state is state
    follows = EXPECTED.get((state, event))
    assert delivery.apply(event) is (follows is not None)
    assert delivery.state is (follows or state)
    assert delivery.is_open is (delivery.state in (S.PENDING, S.ENLISTED))
    assert dict(TRANSITIONS) == EXPECTED


ENDS: dict[str, Callable[[Dispatcher, Delivery], bool]] = {
    "finish": lambda dispatcher, delivery: dispatcher.finish(delivery, E.COMMIT),
    "requeue": lambda dispatcher, delivery: dispatcher.requeue(delivery, sequence=0),
    "delay": lambda dispatcher, delivery: dispatcher.requeue(delivery, sequence=0, until=60.0),
    "park": lambda dispatcher, delivery: dispatcher.park(delivery),
}


@pytest.mark.parametrize(("state", "end"), list(product((S.PENDING, S.ENLISTED), ENDS)))
def test_delivery_ends_once(state: DeliveryState, end: str) -> None:
    queues = QueueFixture()
    queues.add("a")
    (delivery,) = queues.take()
    for step in EVENTS_TO_REACH[state]:
        delivery.apply(step)
    ended = ENDS[end](queues.dispatcher, delivery)
    assert ended is not (end == "finish" and state is S.PENDING), "what was not enlisted cannot be committed"
    if not ended:
        assert queues.take() == []
        return
    assert not queues.dispatcher.deliveries
    assert not queues.consumer.deliveries
    assert queues.consumer.group.in_flight == 0
    for again in ENDS.values():
        assert not again(queues.dispatcher, delivery)
    queues.check()
    assert len(queues.take()) == (end == "requeue")


# Claims


def test_claim_blocks_the_element_in_all_queues() -> None:
    queues = QueueFixture()
    other = queues.join("h")
    queues.add("a")
    queues.add("a", queue=other.queue)
    (delivery,) = queues.take()
    assert queues.take(consumer=other) == []
    queues.dispatcher.requeue(delivery, sequence=0)
    (again,) = queues.take(consumer=other)
    assert again.id != delivery.id
    assert queues.take() == []
    queues.check()


def test_new_match_of_a_claimed_element_waits_for_the_claim() -> None:
    queues = QueueFixture()
    queues.add("a")
    (delivery,) = queues.take()
    late = queues.join("h")
    queues.add("a", queue=late.queue)
    assert queues.take(consumer=late) == []
    queues.dispatcher.requeue(delivery, sequence=0)
    assert len(queues.take(consumer=late)) == 1
    queues.check()


@pytest.mark.parametrize("end", ["requeue", "delay", "park"])
def test_key_is_blocked_while_its_element_may_be_redelivered(end: str) -> None:
    queues = QueueFixture(serialized=True)
    for element in "ab":
        queues.add(element, key="k")
    queues.add("c", key="other")
    first, third = queues.take()
    assert [delivery.queued_element.element for delivery in (first, third)] == ["a", "c"]
    ENDS[end](queues.dispatcher, first)
    queues.check()
    expected = {"requeue": "a", "delay": None, "park": "b"}[end]
    assert [delivery.queued_element.element for delivery in queues.take(1)] == (
        [expected] if expected else []
    )
    if end == "delay":
        assert [*queues.dispatcher.pop_due(60.0)] != []
        assert [delivery.queued_element.element for delivery in queues.take(1)] == ["a"]
    queues.check()


def test_withdrawn_element_unblocks_its_key() -> None:
    queues = QueueFixture(serialized=True)
    for element in "ab":
        queues.add(element, key="k")
    (first,) = queues.take()
    assert queues.queue is not None
    assert queues.dispatcher.remove_match(queues.queue, "a", ("a",)) is first
    assert first.is_withdrawn
    assert queues.take() == [], "its holder works on it still"
    queues.dispatcher.requeue(first, sequence=0)
    assert [delivery.queued_element.element for delivery in queues.take()] == ["b"]
    queues.check()


# Time


def test_leases_expire_in_order_unless_extended() -> None:
    queues = QueueFixture()
    for element in "abc":
        queues.add(element)
    a, b, c = queues.take()
    queues.dispatcher.extend_lease(a, 90.0)
    queues.dispatcher.extend_lease(b, 10.0)
    assert queues.dispatcher.next_deadline == 10.0
    assert [*queues.dispatcher.pop_due(9.9)] == []
    due = []
    for delivery in queues.dispatcher.pop_due(30.0):
        assert isinstance(delivery, Delivery)
        queues.dispatcher.requeue(delivery, sequence=0)
        due.append(delivery)
    assert due == [b, c]
    assert queues.dispatcher.next_deadline == 90.0


def test_stored_delay_applies_to_a_new_consumer() -> None:
    """Attempts are stored for an element that no queue contains."""
    queues = QueueFixture()
    queues.dispatcher.set_attempts("a", "g", Attempts(failures=1, until_ms=60_000))
    queues.add("a")
    assert queues.take() == []
    assert queues.dispatcher.next_deadline == 60.0
    assert [*queues.dispatcher.pop_due(60.0)] != []
    (delivery,) = queues.take()
    assert delivery.attempt == 2


# Fairness


@pytest.mark.parametrize("waiting", range(12))
@pytest.mark.parametrize("held", [(0, 0, 0), (2, 0, 0), (0, 3, 1), (4, 4, 4)])
def test_poll_delivers_a_fair_share(waiting: int, held: tuple[int, ...]) -> None:
    """At most max(1, ⌈(waiting + held by the group) / M⌉ - held by it), where M is the number of consumers with
    capacity.
    """
    queues = QueueFixture(bound=4)
    consumers = [queues.consumer, *(queues.join("g", queues.queue) for _ in range(2))]
    for number in range(sum(held)):
        queues.add(f"held {number}")
    for consumer, count_held in zip(consumers, held, strict=True):
        for _ in range(count_held):
            queues.take(1, consumer)
        assert len(consumer.deliveries) == count_held
    for number in range(waiting):
        queues.add(f"waiting {number}")
    for consumer in consumers:
        room = consumer.max_unacked - len(consumer.deliveries)
        rivals = sum(len(each.deliveries) < each.max_unacked for each in consumers)
        mine, all_held = len(consumer.deliveries), sum(len(each.deliveries) for each in consumers)
        left = waiting + sum(held) - all_held
        expected = min(room, left, max(1, -(-(left + all_held) // rivals) - mine)) if room else 0
        assert len(queues.take(None, consumer)) == expected
    queues.check()


def test_group_has_its_own_limit() -> None:
    queues = QueueFixture()
    bounded = queues.join("b", group_bound=3)
    rival = queues.join("b", bounded.queue, group_bound=3)
    for number in range(9):
        queues.add(f"e{number}", queue=bounded.queue)
    assert len(queues.take(consumer=bounded)) == 3
    assert queues.take(consumer=rival) == []

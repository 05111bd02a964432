"""The desk: what may happen to a delivery in which state, and what stays true of claims, keys and counts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, product
from typing import Any

import pytest

from vedette.queue.dispatcher import Dispatcher
from vedette.queue.entry import TRANSITIONS, Attempts, Delivery, DeliveryEvent, DeliveryState, QueuedMatch
from vedette.queue.match_queue import Consumer, MatchQueue

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
WAYS: dict[DeliveryState, list[DeliveryEvent]] = {
    S.PENDING: [],
    S.ENLISTED: [E.ENLIST],
    S.DONE: [E.ENLIST, E.COMMIT],
    S.REQUEUED: [E.REQUEUE],
    S.PARKED: [E.PARK],
}
"""How a delivery gets into each state."""


class Counter:
    """A desk with one pool, or one more for each group asked for, and short words for what happens there."""

    def __init__(self, *, serialized: bool = False, bound: int = 10) -> None:
        ids = count(1)
        self.desk = Dispatcher(lambda: f"d_{next(ids)}", lambda ms: ms / 1000)
        self.numbers = count(1)
        self.serialized, self.bound = serialized, bound
        self.member = self.join("g")
        self.pool = self.member.queue

    def join(self, name: str, pool: MatchQueue | None = None, group_bound: int | None = None) -> Consumer:
        group = self.desk.group(name, name)
        member = Consumer(next(self.numbers), group, bound=self.bound, group_bound=group_bound, watch=None)
        if pool is None:
            pool = MatchQueue(group, serialized=self.serialized, source=None)
        self.desk.add_consumer(member, pool)
        return member

    def offer(self, element: str, rank: int = 0, serial: Any = None, pool: MatchQueue | None = None) -> None:
        want = QueuedMatch((element,), {}, (rank,), serial)
        target = self.pool if pool is None else pool
        assert target is not None
        self.desk.add_match(target, element, want, sequence=0, tick=0, now=0.0)

    def take(
        self, limit: int | None = None, member: Consumer | None = None, now: float = 0.0
    ) -> list[Delivery]:
        return self.desk.deliver(member or self.member, limit, durable=0, now=now, lease=30.0)

    def check(self) -> None:
        self.desk.validate([pool for group in self.desk.groups.values() for pool in group.queues])


# --- states -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "event"), list(product(DeliveryState, DeliveryEvent)))
def test_every_event_in_every_state(state: DeliveryState, event: DeliveryEvent) -> None:
    counter = Counter()
    counter.offer("a")
    (delivery,) = counter.take()
    for step in WAYS[state]:
        assert delivery.apply(step)
    assert delivery.state is state
    follows = EXPECTED.get((state, event))
    assert delivery.apply(event) is (follows is not None)
    assert delivery.state is (follows or state)
    assert delivery.is_open is (delivery.state in (S.PENDING, S.ENLISTED))
    assert dict(TRANSITIONS) == EXPECTED


ENDS: dict[str, Callable[[Dispatcher, Delivery], bool]] = {
    "finish": lambda desk, delivery: desk.finish(delivery, E.COMMIT),
    "give back": lambda desk, delivery: desk.requeue(delivery, sequence=0),
    "delay": lambda desk, delivery: desk.requeue(delivery, sequence=0, until=60.0),
    "park": lambda desk, delivery: desk.park(delivery),
}


@pytest.mark.parametrize(("state", "end"), list(product((S.PENDING, S.ENLISTED), ENDS)))
def test_a_delivery_ends_once(state: DeliveryState, end: str) -> None:
    counter = Counter()
    counter.offer("a")
    (delivery,) = counter.take()
    for step in WAYS[state]:
        delivery.apply(step)
    ended = ENDS[end](counter.desk, delivery)
    assert ended is not (end == "finish" and state is S.PENDING), "what was not enlisted cannot be committed"
    if not ended:
        assert counter.take() == []
        return
    assert not counter.desk.deliveries
    assert not counter.member.deliveries
    assert counter.member.group.in_flight == 0
    for again in ENDS.values():
        assert not again(counter.desk, delivery)
    counter.check()
    assert len(counter.take()) == (end == "give back")


# --- claims -----------------------------------------------------------------------------------------------------


def test_a_claim_is_global() -> None:
    counter = Counter()
    other = counter.join("h")
    counter.offer("a")
    counter.offer("a", pool=other.queue)
    (delivery,) = counter.take()
    assert counter.take(member=other) == []
    counter.desk.requeue(delivery, sequence=0)
    (again,) = counter.take(member=other)
    assert again.id != delivery.id
    assert counter.take() == []
    counter.check()


def test_what_comes_to_a_claimed_element_waits_for_it() -> None:
    counter = Counter()
    counter.offer("a")
    (delivery,) = counter.take()
    late = counter.join("h")
    counter.offer("a", pool=late.queue)
    assert counter.take(member=late) == []
    counter.desk.requeue(delivery, sequence=0)
    assert len(counter.take(member=late)) == 1
    counter.check()


@pytest.mark.parametrize("end", ["give back", "delay", "park"])
def test_a_key_is_held_as_long_as_its_item_may_come_again(end: str) -> None:
    counter = Counter(serialized=True)
    for element in "ab":
        counter.offer(element, serial="k")
    counter.offer("c", serial="other")
    first, third = counter.take()
    assert [delivery.queued_element.element for delivery in (first, third)] == ["a", "c"]
    ENDS[end](counter.desk, first)
    counter.check()
    expected = {"give back": "a", "delay": None, "park": "b"}[end]
    assert [delivery.queued_element.element for delivery in counter.take(1)] == (
        [expected] if expected else []
    )
    if end == "delay":
        assert [*counter.desk.pop_due(60.0)] != []
        assert [delivery.queued_element.element for delivery in counter.take(1)] == ["a"]
    counter.check()


def test_a_withdrawn_item_frees_its_key() -> None:
    counter = Counter(serialized=True)
    for element in "ab":
        counter.offer(element, serial="k")
    (first,) = counter.take()
    assert counter.pool is not None
    assert counter.desk.remove_match(counter.pool, "a", ("a",)) is first
    assert first.is_withdrawn
    assert counter.take() == [], "its holder works on it still"
    counter.desk.requeue(first, sequence=0)
    assert [delivery.queued_element.element for delivery in counter.take()] == ["b"]
    counter.check()


# --- time -------------------------------------------------------------------------------------------------------


def test_leases_end_in_their_order_and_only_those_that_were_not_extended() -> None:
    counter = Counter()
    for element in "abc":
        counter.offer(element)
    a, b, c = counter.take()
    counter.desk.extend_lease(a, 90.0)
    counter.desk.extend_lease(b, 10.0)
    assert counter.desk.next_deadline == 10.0
    assert [*counter.desk.pop_due(9.9)] == []
    due = []
    for delivery in counter.desk.pop_due(30.0):
        assert isinstance(delivery, Delivery)
        counter.desk.requeue(delivery, sequence=0)
        due.append(delivery)
    assert due == [b, c]
    assert counter.desk.next_deadline == 90.0


def test_a_delay_outlives_the_consumers() -> None:
    """What is remembered of an element that nobody waits for at present."""
    counter = Counter()
    counter.desk.set_attempts("a", "g", Attempts(failures=1, until_ms=60_000))
    counter.offer("a")
    assert counter.take() == []
    assert counter.desk.next_deadline == 60.0
    assert [*counter.desk.pop_due(60.0)] != []
    (delivery,) = counter.take()
    assert delivery.attempt == 2


# --- fairness ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("waiting", range(12))
@pytest.mark.parametrize("held", [(0, 0, 0), (2, 0, 0), (0, 3, 1), (4, 4, 4)])
def test_a_poll_hands_out_a_fair_part(waiting: int, held: tuple[int, ...]) -> None:
    """surface.md: at most max(1, ⌈(waiting + held by the group) / M⌉ - held by it), M = members with room."""
    counter = Counter(bound=4)
    members = [counter.member, *(counter.join("g", counter.pool) for _ in range(2))]
    for number in range(sum(held)):
        counter.offer(f"held {number}")
    for member, wanted in zip(members, held, strict=True):
        for _ in range(wanted):
            counter.take(1, member)
        assert len(member.deliveries) == wanted
    for number in range(waiting):
        counter.offer(f"waiting {number}")
    for member in members:
        room = member.max_unacked - len(member.deliveries)
        rivals = sum(len(each.deliveries) < each.max_unacked for each in members)
        mine, all_held = len(member.deliveries), sum(len(each.deliveries) for each in members)
        left = waiting + sum(held) - all_held
        expected = min(room, left, max(1, -(-(left + all_held) // rivals) - mine)) if room else 0
        assert len(counter.take(None, member)) == expected
    counter.check()


def test_a_group_has_a_bound_of_its_own() -> None:
    counter = Counter()
    bounded = counter.join("b", group_bound=3)
    rival = counter.join("b", bounded.queue, group_bound=3)
    for number in range(9):
        counter.offer(f"e{number}", pool=bounded.queue)
    assert len(counter.take(member=bounded)) == 3
    assert counter.take(member=rival) == []

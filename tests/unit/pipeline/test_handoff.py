"""Partitions move between gateways: whatever happens in between, nobody misses a change and repeats are known.

The model has what the machine has not: changes, gateways with desks, links on which things take their time. A gateway
that is the owner, or is being made it, takes changes in order; the place it was handed is where its desk begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vedette.pipeline.handoff import (
    BROADCAST_SECONDS,
    DRAIN_SECONDS,
    TRANSITIONS,
    Drain,
    Handoffs,
    HandOver,
    Place,
    partition_key,
)
from vedette.pipeline.ring import Ring

NAMES = ("g1", "g2", "g3", "g4")


def moved_partition(before: Ring, after: Ring) -> int:
    moved = before.moved(after, [partition_key(number) for number in range(100)])
    return next(number for number in range(100) if partition_key(number) in moved)


def test_a_move_in_good_order():
    one, two = Ring(["g1"]), Ring(["g1", "g2"])
    partition, handoffs = moved_partition(one, two), Handoffs()
    assert handoffs.ring_changed(one, [partition], 0.0) == []
    assert handoffs.ring_changed(two, [partition], 1.0) == [Drain(partition, "g1")]
    assert handoffs.moves[partition].targets == ("g1",)
    place = Place(1, 41)
    assert handoffs.place_told(partition, "g2", place, 1.1) == [], "only the donor is asked"
    assert handoffs.place_told(partition, "g1", place, 1.1) == [HandOver(partition, "g1", "g2", place)]
    assert handoffs.moves[partition].targets == ("g1", "g2")
    handoffs.caught_up(partition, "g2", Place(1, 40), 1.2)
    assert handoffs.moves[partition].state == "broadcast"
    handoffs.caught_up(partition, "g2", Place(1, 41), 1.3)
    assert handoffs.moves[partition].targets == ("g2",)


def test_a_broadcast_lasts_a_second_at_most():
    one, two = Ring(["g1"]), Ring(["g1", "g2"])
    partition, handoffs = moved_partition(one, two), Handoffs()
    handoffs.ring_changed(one, [partition], 0.0)
    handoffs.ring_changed(two, [partition], 0.0)
    handoffs.place_told(partition, "g1", Place(1, 1), 0.0)
    handoffs.tick({}, two.members, BROADCAST_SECONDS - 0.01)
    assert handoffs.moves[partition].targets == ("g1", "g2")
    handoffs.tick({}, two.members, BROADCAST_SECONDS)
    assert handoffs.moves[partition].targets == ("g2",)


@pytest.mark.parametrize("donor_is_there", [True, False])
def test_a_donor_that_says_nothing_is_replaced_by_what_was_accepted(donor_is_there: bool):
    one, two = Ring(["g1"]), Ring(["g2"] + (["g1"] if donor_is_there else []))
    partition, handoffs = moved_partition(one, two), Handoffs()
    handoffs.ring_changed(one, [partition], 0.0)
    handoffs.ring_changed(two, [partition], 0.0)
    accepted = {partition: Place(1, 7)}
    late = DRAIN_SECONDS if donor_is_there else 0.0
    donor = "g1" if donor_is_there else None
    assert handoffs.tick(accepted, two.members, late) == [HandOver(partition, donor, "g2", Place(1, 7))]


class Gateways:
    """Gateways with desks, and a pipeline that numbers changes of one partition and gives them to whom it should."""

    def __init__(self, members: list[str]) -> None:
        self.handoffs, self.now, self.seq = Handoffs(), 0.0, 0
        self.members = list(members)
        self.taken: dict[str, list[int]] = {name: [] for name in NAMES}
        self.begins: dict[str, int] = {}
        """Where the desk of an owner begins: it drops what is not past it."""
        self.waiting: list[Drain] = []
        self.change_ring(members)
        owner = self.handoffs.moves[1].owner
        assert owner is not None
        self.begins[owner] = 0

    def change_ring(self, members: list[str]) -> None:
        self.members = list(members)
        self.obey(self.handoffs.ring_changed(Ring(members), [1], self.now))

    def write(self) -> None:
        """A change is accepted by all its targets that are there before the next one comes."""
        self.seq += 1
        for name in self.handoffs.moves[1].targets:
            if name in self.members and self.seq > self.begins.get(name, self.seq):
                self.taken[name].append(self.seq)

    def answer(self) -> None:
        for drain in self.waiting:
            if drain.donor in self.members:
                self.obey(self.handoffs.place_told(1, drain.donor, Place(1, self.seq), self.now))
        self.waiting = []

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.obey(self.handoffs.tick({1: Place(1, self.seq)}, self.members, self.now))
        move = self.handoffs.moves[1]
        if move.state == "broadcast" and move.recipient in self.members:
            self.handoffs.caught_up(1, str(move.recipient), Place(1, self.seq), self.now)

    def obey(self, instructions: Sequence[Drain | HandOver]) -> None:
        for instruction in instructions:
            match instruction:
                case Drain():
                    self.waiting.append(instruction)
                case HandOver(recipient=recipient, place=place):
                    self.begins[recipient] = place.seq
                    self.taken[recipient] = []


STEPS = st.one_of(
    st.just(("write",)),
    st.just(("answer",)),
    st.tuples(st.just("time"), st.sampled_from([0.01, 0.3, 1.1])),
    st.tuples(st.just("ring"), st.sets(st.sampled_from(NAMES), min_size=1)),
)


@settings(max_examples=300)
@given(st.sets(st.sampled_from(NAMES), min_size=1), st.lists(STEPS, max_size=40))
def test_whoever_owns_a_partition_in_the_end_has_everything_since_its_place(
    first: set[str], steps: list[tuple[Any, ...]]
):
    world = Gateways(sorted(first))
    for step in steps:
        match step:
            case ("write",):
                world.write()
            case ("answer",):
                world.answer()
            case ("time", seconds):
                world.pass_time(seconds)
            case ("ring", members):
                world.change_ring(sorted(members))
        world.handoffs.validate()
    for _ in range(4):
        world.answer()
        world.pass_time(1.1)
    move = world.handoffs.moves[1]
    assert move.state == "steady"
    assert move.owner == Ring(world.members).owner(partition_key(1))
    owner = str(move.owner)
    before = world.seq
    for _ in range(3):
        world.write()
    begin = world.begins[owner]
    assert world.taken[owner] == sorted(set(world.taken[owner])), "a repeat got through"
    # No gap: from its place on it has every number, or everything since it came back to what it always had.
    assert world.taken[owner][-3:] == [before + 1, before + 2, before + 3]
    assert begin <= before
    assert world.taken[owner] == list(range(begin + 1, world.seq + 1))


def test_the_table_is_the_machine():
    assert {state for state, _ in TRANSITIONS} | set(TRANSITIONS.values()) == {
        "steady",
        "draining",
        "broadcast",
    }

"""Lines against lists that are sorted anew at every step."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from heapq import nsmallest
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from vedette.queue.line import HeapLine, KeyedLine, SortedLine
from vedette.watch.ordering import SortKey

KEYS = st.sampled_from("abc")
RANKS = st.tuples(st.integers(0, 3))
PLACES = st.integers(0, 11)


@dataclass(eq=False)
class Stander:
    """Someone who stands in line, or not."""

    arrival: int
    rank: SortKey = ()
    serialization_key: Hashable = None
    line_version: int = 0
    is_in_line: bool = False

    def __lt__(self, other: Stander) -> bool:
        return self.arrival < other.arrival

    @property
    def turn(self) -> tuple[SortKey, int]:
        return self.rank, self.arrival


class LineMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.line: Any = self.fresh()
        self.people = [Stander(number) for number in range(12)]
        self.held: dict[Hashable, bool] = {}

    def fresh(self) -> Any:
        return HeapLine()

    def eligible(self) -> list[Stander]:
        return [who for who in self.people if who.is_in_line]

    @rule(number=PLACES, rank=RANKS, key=KEYS)
    def put(self, number: int, rank: SortKey, key: str) -> None:
        """Whoever moves leaves the line first: in a line for each key it stands under its former one."""
        who = self.people[number]
        self.line.remove(who)
        who.rank, who.serialization_key = rank, key
        self.line.add(who)
        assert who.is_in_line

    @rule(number=PLACES)
    def put_again(self, number: int) -> None:
        who = self.people[number]
        if who.is_in_line:
            self.line.add(who)

    @rule(number=PLACES)
    def discard(self, number: int) -> None:
        self.line.remove(self.people[number])
        assert not self.people[number].is_in_line

    @rule(times=st.integers(60, 90), number=PLACES, rank=RANKS)
    def move_very_often(self, times: int, number: int, rank: SortKey) -> None:
        """So often that the void entries are thrown away."""
        for _ in range(times):
            self.put(number, rank, "a")

    @invariant()
    def agrees(self) -> None:
        self.line.validate()
        assert len(self.line) == sum(who.is_in_line for who in self.people)
        self.first_is(min(self.eligible(), key=lambda who: who.turn, default=None))

    def first_is(self, expected: Stander | None) -> None:
        assert self.line.peek() is expected


class LongLineMachine(LineMachine):
    def fresh(self) -> Any:
        return SortedLine()

    def first_is(self, expected: Stander | None) -> None:
        """Nobody asks it without handing out; see pop."""

    @rule(most=st.integers(0, 5))
    def pop(self, most: int) -> None:
        expected = sorted(self.eligible(), key=lambda who: who.turn)[:most]
        assert self.line.pop(most) == expected
        assert not any(who.is_in_line for who in expected)


class SerialLineMachine(LineMachine):
    def fresh(self) -> Any:
        return KeyedLine(lambda key: self.held.get(key, False))

    def eligible(self) -> list[Stander]:
        firsts: dict[Hashable, Stander] = {}
        for who in sorted(super().eligible(), key=lambda who: who.turn):
            firsts.setdefault(who.serialization_key, who)
        return [who for key, who in firsts.items() if not self.held.get(key, False)]

    @rule(key=KEYS)
    def hold(self, key: str) -> None:
        self.held[key] = True

    @precondition(lambda self: any(self.held.values()))
    @rule(key=KEYS)
    def let_go(self, key: str) -> None:
        if self.held.get(key, False):
            self.held[key] = False
            self.line.expose_head(key)

    @rule(most=st.integers(0, 3))
    def pop(self, most: int) -> None:
        """Who goes has its key held, as the desk does at once: so only one goes at a time."""
        expected = sorted(self.eligible(), key=lambda who: who.turn)[: min(most, 1)]
        assert self.line.pop(most) == expected
        for who in expected:
            self.held[who.serialization_key] = True


@given(st.integers(0, 2**32), st.integers(1, 1_000))
@settings(max_examples=10, deadline=None)
def test_a_line_of_many_blocks(seed: int, ranks: int) -> None:
    """Long enough that blocks are split, used up and thrown together."""
    rng = Random(seed)
    line, waiting = SortedLine(), []
    for number in range(6_000):
        who = Stander(number, (rng.randrange(ranks),))
        line.add(who)
        waiting.append(who)
        if number % 3 == 0:
            expected = nsmallest(rng.randrange(1, 4), waiting, key=lambda who: who.turn)
            assert line.pop(len(expected)) == expected
            for who in expected:
                waiting.remove(who)
        elif number % 7 == 0:
            line.remove(waiting.pop(rng.randrange(len(waiting))))
    line.validate()
    assert line.pop(len(waiting) + 1) == sorted(waiting, key=lambda who: who.turn)
    assert line.pop(1) == []


TestLine = LineMachine.TestCase
TestLine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLongLine = LongLineMachine.TestCase
TestLongLine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestSerialLine = SerialLineMachine.TestCase
TestSerialLine.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def test_a_long_line_forgets_whoever_leaves_it() -> None:
    """Also when nobody comes any more."""
    line, people = SortedLine(), [Stander(number, (number,)) for number in range(1_000)]
    for who in people:
        line.add(who)
    for who in people:
        line.remove(who)
    assert sum(map(len, line._blocks)) <= 100


def test_the_front_of_lines_by_key_stays_short_when_nobody_takes_anything() -> None:
    """Firsts come and go, and one of them is ranked anew all the time."""
    line = KeyedLine(lambda _: False)
    waiting = Stander(0, (0,), "a")
    for number in range(1, 2_000):
        passing = Stander(number, (5,), str(number))
        line.add(passing)
        line.remove(passing)
        waiting.rank = (number % 7,)
        line.add(waiting)
    line.validate()
    assert len(line._heads) <= 100

"""Lines compared with lists that are sorted at every step."""

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
NUMBERS = st.integers(0, 11)


@dataclass(eq=False)
class FakeEntry:
    """An entry with the attributes that a line uses."""

    arrival: int
    rank: SortKey = ()
    serialization_key: Hashable = None
    line_version: int = 0
    is_in_line: bool = False

    def __lt__(self, other: FakeEntry) -> bool:
        return self.arrival < other.arrival

    @property
    def line_order(self) -> tuple[SortKey, int]:
        return self.rank, self.arrival


class LineMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.line: Any = self.new_line()
        self.entries = [FakeEntry(number) for number in range(12)]
        self.held: dict[Hashable, bool] = {}

    def new_line(self) -> Any:
        return HeapLine()

    def eligible(self) -> list[FakeEntry]:
        return [entry for entry in self.entries if entry.is_in_line]

    @rule(number=NUMBERS, rank=RANKS, key=KEYS)
    def put(self, number: int, rank: SortKey, key: str) -> None:
        """An entry leaves the line before its rank or key changes."""
        entry = self.entries[number]
        self.line.remove(entry)
        entry.rank, entry.serialization_key = rank, key
        self.line.add(entry)
        assert entry.is_in_line

    @rule(number=NUMBERS)
    def put_again(self, number: int) -> None:
        entry = self.entries[number]
        if entry.is_in_line:
            self.line.add(entry)

    @rule(number=NUMBERS)
    def discard(self, number: int) -> None:
        self.line.remove(self.entries[number])
        assert not self.entries[number].is_in_line

    @rule(times=st.integers(60, 90), number=NUMBERS, rank=RANKS)
    def move_very_often(self, times: int, number: int, rank: SortKey) -> None:
        """Repeat until obsolete tuples are compacted."""
        for _ in range(times):
            self.put(number, rank, "a")

    @invariant()
    def agrees(self) -> None:
        self.line.validate()
        assert len(self.line) == sum(entry.is_in_line for entry in self.entries)
        self.first_is(min(self.eligible(), key=lambda entry: entry.line_order, default=None))

    def first_is(self, expected: FakeEntry | None) -> None:
        assert self.line.peek() is expected


class LongLineMachine(LineMachine):
    def new_line(self) -> Any:
        return SortedLine()

    def first_is(self, expected: FakeEntry | None) -> None:
        """Not tested for a keyed line, because only `pop` blocks keys."""

    @rule(limit=st.integers(0, 5))
    def pop(self, limit: int) -> None:
        expected = sorted(self.eligible(), key=lambda entry: entry.line_order)[:limit]
        assert self.line.pop(limit) == expected
        assert not any(entry.is_in_line for entry in expected)


class SerialLineMachine(LineMachine):
    def new_line(self) -> Any:
        return KeyedLine(lambda key: self.held.get(key, False))

    def eligible(self) -> list[FakeEntry]:
        firsts: dict[Hashable, FakeEntry] = {}
        for entry in sorted(super().eligible(), key=lambda entry: entry.line_order):
            firsts.setdefault(entry.serialization_key, entry)
        return [entry for key, entry in firsts.items() if not self.held.get(key, False)]

    @rule(key=KEYS)
    def hold(self, key: str) -> None:
        self.held[key] = True

    @precondition(lambda self: any(self.held.values()))
    @rule(key=KEYS)
    def let_go(self, key: str) -> None:
        if self.held.get(key, False):
            self.held[key] = False
            self.line.expose_head(key)

    @rule(limit=st.integers(0, 3))
    def pop(self, limit: int) -> None:
        """A popped entry blocks its key at once, as the dispatcher does, so at most one entry is returned."""
        expected = sorted(self.eligible(), key=lambda entry: entry.line_order)[: min(limit, 1)]
        assert self.line.pop(limit) == expected
        for entry in expected:
            self.held[entry.serialization_key] = True


@given(st.integers(0, 2**32), st.integers(1, 1_000))
@settings(max_examples=10, deadline=None)
def test_sorted_line_of_many_blocks(seed: int, ranks: int) -> None:
    """Long enough for blocks to be split, emptied and merged."""
    rng = Random(seed)
    line, waiting = SortedLine(), []
    for number in range(6_000):
        entry = FakeEntry(number, (rng.randrange(ranks),))
        line.add(entry)
        waiting.append(entry)
        if number % 3 == 0:
            expected = nsmallest(rng.randrange(1, 4), waiting, key=lambda entry: entry.line_order)
            assert line.pop(len(expected)) == expected
            for entry in expected:
                waiting.remove(entry)
        elif number % 7 == 0:
            line.remove(waiting.pop(rng.randrange(len(waiting))))
    line.validate()
    assert line.pop(len(waiting) + 1) == sorted(waiting, key=lambda entry: entry.line_order)
    assert line.pop(1) == []


TestLine = LineMachine.TestCase
TestLine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLongLine = LongLineMachine.TestCase
TestLongLine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestSerialLine = SerialLineMachine.TestCase
TestSerialLine.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def test_sorted_line_drops_removed_entries() -> None:
    """Also without later additions."""
    line, entries = SortedLine(), [FakeEntry(number, (number,)) for number in range(1_000)]
    for entry in entries:
        line.add(entry)
    for entry in entries:
        line.remove(entry)
    assert sum(map(len, line._blocks)) <= 100


def test_heads_of_a_keyed_line_stay_short_without_pops() -> None:
    """Heads are added and removed, and one entry changes its rank repeatedly."""
    line = KeyedLine(lambda _: False)
    waiting = FakeEntry(0, (0,), "a")
    for number in range(1, 2_000):
        passing = FakeEntry(number, (5,), str(number))
        line.add(passing)
        line.remove(passing)
        waiting.rank = (number % 7,)
        line.add(waiting)
    line.validate()
    assert len(line._heads) <= 100

"""The buffer of one watch: bounded, in order, honest about what was dropped."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.watch.buffer import AppendResult, BufferedEvent, EventBuffer
from vedette.watch.delta import ADDED, CHANGED, Delta

EVERYTHING = 1 << 60


def entry(
    position: int, *, sequence: int = 0, initial: bool = False, identity: Any = None, order: Any = ()
) -> BufferedEvent:
    delta = Delta("initial" if initial else ADDED, {"n": position}, None, identity, order)
    return BufferedEvent(position, sequence, 0, delta)


def filled(*entries: BufferedEvent, limit: int = 1000, on_full: str = "drop") -> EventBuffer:
    buffer = EventBuffer()
    for each in entries:
        buffer.append(each, limit, on_full)
        buffer.validate()
    return buffer


def positions(entries: list[BufferedEvent]) -> list[int]:
    return [each.position for each in entries]


def test_in_order_and_only_once():
    buffer = filled(entry(1), entry(2), entry(3))
    assert positions(buffer.take(EVERYTHING, 2)) == [1, 2]
    assert positions(buffer.take(EVERYTHING, None)) == [3]
    assert buffer.take(EVERYTHING, None) == []


def test_nothing_before_it_is_durable():
    buffer = filled(entry(1, sequence=1), entry(2, sequence=2), entry(3, sequence=2))
    assert not buffer.ready(0)
    assert buffer.take(0, None) == []
    assert positions(buffer.take(1, None)) == [1]
    assert positions(buffer.take(2, None)) == [2, 3]


def test_the_event_after_a_gap_tells_of_it():
    buffer = filled(*(entry(n) for n in range(1, 6)), limit=2)
    left = buffer.take(EVERYTHING, None)
    assert positions(left) == [4, 5]
    assert [each.dropped for each in left] == [3, 0]
    assert buffer.dropped == 3


def test_the_snapshot_is_never_dropped():
    buffer = filled(entry(1, initial=True), *(entry(n) for n in range(2, 6)), limit=1)
    left = buffer.take(EVERYTHING, None)
    assert positions(left) == [1, 5]
    assert left[1].dropped == 3


def test_what_error_and_block_mean():
    full = filled(entry(1), limit=1)
    assert full.append(entry(2), 1, "error") is AppendResult.OVERFLOW
    assert full.append(entry(2), 1, "block") is AppendResult.APPENDED
    assert full.append(entry(3), 1, "drop") is AppendResult.DROPPED_OLDEST
    assert positions(full.peek()) == [2, 3]


def test_what_is_held_for_a_tick_waits():
    buffer = filled(entry(1), entry(2))
    buffer.held_for_tick = 1
    assert positions(buffer.take(EVERYTHING, None)) == [1]
    assert not buffer.ready(EVERYTHING)
    buffer.held_for_tick = 0
    assert positions(buffer.take(EVERYTHING, None)) == [2]


def test_dropping_what_is_held():
    buffer = filled(entry(1), entry(2))
    buffer.held_for_tick = 2
    buffer.append(entry(3), 2, "drop")
    buffer.held_for_tick += 1
    buffer.validate()


def test_taken_back_and_forgotten():
    buffer = filled(*(entry(n, sequence=n) for n in range(1, 5)))
    taken = buffer.take(EVERYTHING, 2)
    buffer.prepend(taken)
    assert positions(buffer.peek()) == [1, 2, 3, 4]
    buffer.discard_until(1)
    assert buffer.discard_after(3) == 1
    assert positions(buffer.peek()) == [2, 3]
    buffer.clear()
    assert len(buffer) == 0
    buffer.validate()


# Ordering by attribute


@pytest.mark.parametrize(
    ("descending", "values", "expected"),
    [
        ((False,), [(2,), (1,), (None,), (1,)], [2, 4, 1, 3]),
        ((True,), [(2,), (1,), (None,), (1,)], [3, 1, 2, 4]),
        ((False, True), [(1, 1), (1, 2), (0, 0)], [3, 2, 1]),
        ((False,), [("b",), (1,), ("a",)], [2, 3, 1]),
    ],
)
def test_by_attribute(descending: tuple[bool, ...], values: list[tuple[Any, ...]], expected: list[int]):
    waiting = [entry(n, identity=n, order=value) for n, value in enumerate(values, 1)]
    assert positions(filled(*waiting).take(EVERYTHING, None, descending)) == expected


def test_events_of_one_identity_keep_their_order():
    waiting = [
        entry(1, initial=True),
        entry(2, identity="a", order=(5,)),
        entry(3, identity="b", order=(3,)),
        entry(4, identity="a", order=(1,)),
    ]
    assert positions(filled(*waiting).take(EVERYTHING, None, (False,))) == [1, 3, 2, 4]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3) | st.none()), max_size=12), st.integers(1, 4))
def test_ordering_in_pieces_loses_nothing_and_reorders_no_identity(events: list[Any], limit: int):
    waiting = [entry(n, identity=who, order=(value,)) for n, (who, value) in enumerate(events, 1)]
    buffer, taken = filled(*waiting), []
    while piece := buffer.take(EVERYTHING, limit, (True,)):
        buffer.validate()
        assert len(piece) <= limit
        taken += piece
    assert sorted(positions(taken)) == list(range(1, len(events) + 1))
    for who in range(4):
        own = [each.position for each in taken if each.delta.identity == who]
        assert own == sorted(own)


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["offer", "take", "hold", "release", "durable"]), st.integers(1, 3)),
    max_size=40,
)


@given(OPERATIONS, st.integers(1, 5))
def test_every_position_is_taken_or_told_as_dropped(operations: list[tuple[str, int]], limit: int):
    """A reader who adds `dropped` to what arrives can account for every position."""
    buffer, sequence, durable, seen, position, hold = EventBuffer(), 0, 0, 0, 0, False
    for operation, number in operations:
        match operation:
            case "offer":
                position, sequence = position + 1, sequence + 1
                delta = Delta(CHANGED, {"n": position}, {"n": 0})
                buffer.append(BufferedEvent(position, sequence, 0, delta), limit, "drop")
                buffer.held_for_tick += hold
            case "take":
                for each in buffer.take(durable, number):
                    assert each.position == seen + each.dropped + 1
                    seen = each.position
            case "hold":
                hold = True
            case "release":
                hold, buffer.held_for_tick = False, 0
            case "durable":
                durable = sequence
        buffer.validate()
        assert len(buffer) <= limit


def test_of_what_is_left_in_order_of_attributes_the_oldest_is_dropped_first():
    buffer = filled(
        entry(1, identity=1, order=(1,)), entry(2, identity=2, order=(9,)), entry(3, identity=3, order=(5,))
    )
    assert positions(buffer.take(EVERYTHING, 1, (True,))) == [2]
    for position in (4, 5):
        buffer.append(entry(position, identity=position, order=(2,)), 3, "drop")
    left = buffer.take(EVERYTHING, None, (True,))
    assert positions(left) == [3, 4, 5]
    assert [each.dropped for each in left] == [1, 0, 0]


def test_nothing_passes_a_snapshot_whatever_its_rank():
    buffer = filled(
        entry(1, identity=1, order=(1,)),
        entry(2, identity=2, order=(9,)),
        entry(3, initial=True),
        entry(4, identity=1, order=(2,)),
        entry(5, identity=2, order=(8,)),
    )
    assert positions(buffer.take(EVERYTHING, None, (True,))) == [2, 1, 3, 5, 4]

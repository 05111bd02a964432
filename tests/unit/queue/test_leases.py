"""Deadlines of leases and delays."""

from __future__ import annotations

import pytest

from vedette.queue.entry import QueuedElement, QueueEntry
from vedette.queue.group import ConsumerGroup
from vedette.queue.leases import DeadlineHeap
from vedette.queue.match_queue import MatchQueue


def delayed(element: str, until: float) -> QueuedElement:
    queue = MatchQueue(ConsumerGroup("g", "g"), serialized=False, feed=None)
    queued = QueuedElement(QueueEntry(element, queue, 1))
    queued.delayed_until = until
    return queued


def test_deadlines_are_returned_in_order_when_they_are_due() -> None:
    heap = DeadlineHeap()
    late, early = delayed("late", 5.0), delayed("early", 2.0)
    heap.push(5.0, late)
    heap.push(2.0, early)
    assert heap.next_deadline() == 2.0
    assert heap.pop_due(1.9) is None
    assert heap.pop_due(5.0) is early
    assert heap.pop_due(5.0) is late
    assert heap.pop_due(5.0) is None
    assert heap.next_deadline() is None


def test_a_replaced_deadline_is_skipped() -> None:
    heap, element = DeadlineHeap(), delayed("a", 1.0)
    heap.push(1.0, element)
    element.delayed_until = 3.0
    heap.push(3.0, element)
    assert heap.next_deadline() == 3.0
    assert heap.pop_due(2.0) is None


@pytest.mark.parametrize("current", [1, 10])
def test_the_heap_does_not_grow_with_obsolete_deadlines(current: int) -> None:
    heap = DeadlineHeap()
    elements = [delayed(str(number), 0.0) for number in range(current)]
    for moment in range(20_000):
        element = elements[moment % current]
        element.delayed_until = float(moment)
        heap.push(float(moment), element)
    assert len(heap) <= 2 * current + 1024
    assert heap.next_deadline() == 20_000.0 - current

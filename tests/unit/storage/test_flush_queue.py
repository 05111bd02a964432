"""The flush queue: its transition table, and random transitions."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.errors import StoreError
from vedette.storage.flush_queue import TRANSITIONS, FlushEvent, FlushQueue, FlushState

FULL = StoreError("E6001", "no space left")


def ledger_in(state: FlushState) -> FlushQueue[str]:
    """Return a queue at sequence 10 that reached `state` by the shortest path."""
    queue: FlushQueue[str] = FlushQueue(10)
    if state is FlushState.CLOSED:
        queue.close()
    if state in {FlushState.FLUSHING, FlushState.FAILED}:
        queue.submit(11, "a")
        queue.begin_flush()
    if state is FlushState.FAILED:
        queue.fail_flush(FULL)
    return queue


def move(queue: FlushQueue[str], event: FlushEvent) -> None:
    match event:
        case FlushEvent.SUBMIT:
            queue.submit(queue.submitted + 1, "b")
        case FlushEvent.BEGIN:
            queue.begin_flush()
        case FlushEvent.DONE:
            queue.complete_flush()
        case FlushEvent.FAIL:
            queue.fail_flush(FULL)
        case FlushEvent.CLOSE:
            queue.close()


@pytest.mark.parametrize(("state", "event"), [*product(FlushState, FlushEvent)])
def test_transition_table(state: FlushState, event: FlushEvent) -> None:
    queue = ledger_in(state)
    if event is FlushEvent.BEGIN and state is FlushState.IDLE:
        queue.submit(11, "a")
    expected = TRANSITIONS.get((state, event))
    if expected is None:
        with pytest.raises(RuntimeError, match=f"{event} makes no sense now: <FlushLedger {state}"):
            move(queue, event)
        assert queue.state is state
    else:
        move(queue, event)
        assert queue.state is expected
    queue.validate()


def test_flush_takes_all_queued_commits() -> None:
    queue: FlushQueue[str] = FlushQueue(0)
    queue.submit(1, "a")
    queue.submit(3, "b")
    assert queue.begin_flush() == ["a", "b"]
    queue.submit(4, "c")
    assert (queue.durable, queue.can_flush) == (0, False)
    queue.complete_flush()
    assert (queue.durable, queue.can_flush) == (3, True)
    assert queue.begin_flush() == ["c"]
    queue.complete_flush()
    assert (queue.durable, queue.can_flush) == (4, False)


def test_nothing_is_durable_after_a_failure() -> None:
    queue: FlushQueue[str] = FlushQueue(0)
    queue.submit(1, "a")
    queue.begin_flush()
    queue.submit(2, "b")
    queue.fail_flush(FULL)
    assert (queue.durable, queue.queued, queue.error) == (0, [], FULL)
    assert not queue.can_flush


@pytest.mark.parametrize("sequence", [4, 5])
def test_sequences_increase(sequence: int) -> None:
    queue: FlushQueue[str] = FlushQueue(0)
    queue.submit(5, "a")
    with pytest.raises(ValueError, match=f"sequence {sequence} was submitted after sequence 5"):
        queue.submit(sequence, "b")
    queue.validate()


def test_illegal_transition_names_state_and_event() -> None:
    queue = ledger_in(FlushState.FAILED)
    with pytest.raises(RuntimeError, match="last moves: begin, fail"):
        queue.complete_flush()


@given(st.lists(st.sampled_from(list(FlushEvent)), max_size=40))
def test_random_transitions_keep_the_invariants(events: list[FlushEvent]) -> None:
    queue: FlushQueue[str] = FlushQueue(0)
    for event in events:
        allowed = (queue.state, event) in TRANSITIONS
        if event is FlushEvent.BEGIN and not queue.queued:
            allowed = False
        if event is FlushEvent.CLOSE and queue.queued:
            allowed = False  # the log writer flushes first
        if allowed:
            move(queue, event)
        queue.validate()

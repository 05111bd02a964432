"""The bookkeeping of group commit: every move of its table, and any sequence of moves."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.errors import StoreError
from vedette.storage.flush_queue import TRANSITIONS, FlushEvent, FlushQueue, FlushState

FULL = StoreError("E6001", "no space left")


def ledger_in(state: FlushState) -> FlushQueue[str]:
    """A ledger at tick 10 that came to `state` by the shortest way."""
    ledger: FlushQueue[str] = FlushQueue(10)
    if state is FlushState.CLOSED:
        ledger.close()
    if state in {FlushState.FLUSHING, FlushState.FAILED}:
        ledger.submit(11, "a")
        ledger.begin_flush()
    if state is FlushState.FAILED:
        ledger.fail_flush(FULL)
    return ledger


def move(ledger: FlushQueue[str], event: FlushEvent) -> None:
    match event:
        case FlushEvent.SUBMIT:
            ledger.submit(ledger.submitted + 1, "b")
        case FlushEvent.BEGIN:
            ledger.begin_flush()
        case FlushEvent.DONE:
            ledger.complete_flush()
        case FlushEvent.FAIL:
            ledger.fail_flush(FULL)
        case FlushEvent.CLOSE:
            ledger.close()


@pytest.mark.parametrize(("state", "event"), [*product(FlushState, FlushEvent)])
def test_every_move(state: FlushState, event: FlushEvent) -> None:
    ledger = ledger_in(state)
    if event is FlushEvent.BEGIN and state is FlushState.IDLE:
        ledger.submit(11, "a")
    expected = TRANSITIONS.get((state, event))
    if expected is None:
        with pytest.raises(RuntimeError, match=f"{event} makes no sense now: <FlushLedger {state}"):
            move(ledger, event)
        assert ledger.state is state
    else:
        move(ledger, event)
        assert ledger.state is expected
    ledger.validate()


def test_a_flush_takes_what_waits_and_the_next_what_came_meanwhile() -> None:
    ledger: FlushQueue[str] = FlushQueue(0)
    ledger.submit(1, "a")
    ledger.submit(3, "b")
    assert ledger.begin_flush() == ["a", "b"]
    ledger.submit(4, "c")
    assert (ledger.durable, ledger.can_flush) == (0, False)
    ledger.complete_flush()
    assert (ledger.durable, ledger.can_flush) == (3, True)
    assert ledger.begin_flush() == ["c"]
    ledger.complete_flush()
    assert (ledger.durable, ledger.can_flush) == (4, False)


def test_after_a_failure_nothing_more_becomes_durable() -> None:
    ledger: FlushQueue[str] = FlushQueue(0)
    ledger.submit(1, "a")
    ledger.begin_flush()
    ledger.submit(2, "b")
    ledger.fail_flush(FULL)
    assert (ledger.durable, ledger.queued, ledger.error) == (0, [], FULL)
    assert not ledger.can_flush


@pytest.mark.parametrize("tick", [4, 5])
def test_every_commit_has_a_tick_of_its_own(tick: int) -> None:
    ledger: FlushQueue[str] = FlushQueue(0)
    ledger.submit(5, "a")
    with pytest.raises(ValueError, match=f"tick {tick} was submitted after tick 5"):
        ledger.submit(tick, "b")
    ledger.validate()


def test_an_illegal_move_tells_the_history() -> None:
    ledger = ledger_in(FlushState.FAILED)
    with pytest.raises(RuntimeError, match="last moves: begin, fail"):
        ledger.complete_flush()


@given(st.lists(st.sampled_from(list(FlushEvent)), max_size=40))
def test_any_sequence_of_moves_stays_sound(events: list[FlushEvent]) -> None:
    ledger: FlushQueue[str] = FlushQueue(0)
    for event in events:
        allowed = (ledger.state, event) in TRANSITIONS
        if event is FlushEvent.BEGIN and not ledger.queued:
            allowed = False
        if event is FlushEvent.CLOSE and ledger.queued:
            allowed = False  # the shell flushes first
        if allowed:
            move(ledger, event)
        ledger.validate()

"""The bookkeeping of group commit: every move of its table, and any sequence of moves."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.errors import StoreError
from vedette.storage.flush_queue import TRANSITIONS, FlushEvent, FlushLedger, FlushState

FULL = StoreError("E6001", "no space left")


def ledger_in(state: FlushState) -> FlushLedger[str]:
    """A ledger at tick 10 that came to `state` by the shortest way."""
    ledger: FlushLedger[str] = FlushLedger(10)
    if state is FlushState.CLOSED:
        ledger.close()
    if state in {FlushState.FLUSHING, FlushState.FAILED}:
        ledger.submit(11, "a")
        ledger.begin()
    if state is FlushState.FAILED:
        ledger.fail(FULL)
    return ledger


def move(ledger: FlushLedger[str], event: FlushEvent) -> None:
    match event:
        case FlushEvent.SUBMIT:
            ledger.submit(ledger.submitted + 1, "b")
        case FlushEvent.BEGIN:
            ledger.begin()
        case FlushEvent.DONE:
            ledger.done()
        case FlushEvent.FAIL:
            ledger.fail(FULL)
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
    ledger: FlushLedger[str] = FlushLedger(0)
    ledger.submit(1, "a")
    ledger.submit(3, "b")
    assert ledger.begin() == ["a", "b"]
    ledger.submit(4, "c")
    assert (ledger.durable, ledger.can_begin) == (0, False)
    ledger.done()
    assert (ledger.durable, ledger.can_begin) == (3, True)
    assert ledger.begin() == ["c"]
    ledger.done()
    assert (ledger.durable, ledger.can_begin) == (4, False)


def test_after_a_failure_nothing_more_becomes_durable() -> None:
    ledger: FlushLedger[str] = FlushLedger(0)
    ledger.submit(1, "a")
    ledger.begin()
    ledger.submit(2, "b")
    ledger.fail(FULL)
    assert (ledger.durable, ledger.waiting, ledger.error) == (0, [], FULL)
    assert not ledger.can_begin


@pytest.mark.parametrize("tick", [4, 5])
def test_every_commit_has_a_tick_of_its_own(tick: int) -> None:
    ledger: FlushLedger[str] = FlushLedger(0)
    ledger.submit(5, "a")
    with pytest.raises(ValueError, match=f"tick {tick} was submitted after tick 5"):
        ledger.submit(tick, "b")
    ledger.validate()


def test_an_illegal_move_tells_the_history() -> None:
    ledger = ledger_in(FlushState.FAILED)
    with pytest.raises(RuntimeError, match="last moves: begin, fail"):
        ledger.done()


@given(st.lists(st.sampled_from(list(FlushEvent)), max_size=40))
def test_any_sequence_of_moves_stays_sound(events: list[FlushEvent]) -> None:
    ledger: FlushLedger[str] = FlushLedger(0)
    for event in events:
        allowed = (ledger.state, event) in TRANSITIONS
        if event is FlushEvent.BEGIN and not ledger.waiting:
            allowed = False
        if event is FlushEvent.CLOSE and ledger.waiting:
            allowed = False  # the shell flushes first
        if allowed:
            move(ledger, event)
        ledger.validate()

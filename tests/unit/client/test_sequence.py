"""The chain against a model: a hole is never taken for the next event."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from vedette.client.connection import Backoff
from vedette.client.decode import decode_error
from vedette.client.sequence import SequenceCheck, SequenceTracker
from vedette.errors import AnalysisError, FilterError, GatewayError
from vedette.gateway.wire.messages import error_payload


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.data())
def test_any_delivery_of_a_stream(gaps: list[int], data: st.DataObject):
    """Events repeated, left out or resent from earlier: taken are those, and only those, that follow."""
    seqs = [sum(gaps[: i + 1]) for i in range(len(gaps))]
    events = [{"partition": 0, "seq": s, "prevSeq": p} for p, s in zip([0, *seqs], seqs, strict=False)]
    chain = SequenceTracker()
    chain.start_at(0, 0)
    taken: list[int] = []
    for index in data.draw(st.lists(st.integers(0, len(events) - 1), max_size=40)):
        link = chain.check(dict(events[index]))
        if link is SequenceCheck.NEXT:
            taken.append(events[index]["seq"])
        assert (link is SequenceCheck.GAP) == (index > len(taken) - (link is SequenceCheck.NEXT))
    assert taken == seqs[: len(taken)]


@given(st.integers(0, 2**32), st.integers(0, 40))
def test_waits_are_bounded_and_grow(seed: int, tries: int):
    backoff = Backoff(Random(seed), base_seconds=0.1, cap_seconds=5)
    waits = [backoff.next_delay() for _ in range(tries)]
    assert all(0 <= wait <= min(5, 0.1 * 2**n) for n, wait in enumerate(waits))
    backoff.reset()
    assert backoff.next_delay() <= 0.1


def test_errors_come_back_as_they_went():
    for error in (
        AnalysisError("E2001", "Unknown type 'X': try Y", fields={"type": "X"}),
        FilterError("E1201", "filters[0]: no", fields={"index": 0}),
    ):
        found = decode_error(error_payload(error))
        assert (type(found), found.code, found.text, found.fields) == (
            type(error),
            error.code,
            error.text,
            error.fields,
        )
    assert isinstance(decode_error({"code": "unauthorized", "message": "invalid token"}), GatewayError)
    assert decode_error({"code": "busy", "message": "x"}).retryable

"""Gap and duplicate detection against a model: an event after a gap is never taken for the next one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vedette.client.sequence import SequenceCheck, SequenceTracker


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.data())
def test_only_events_that_follow_are_next(gaps: list[int], data: st.DataObject):
    """Events arrive repeated, omitted, or again from an earlier one."""
    seqs = [sum(gaps[: i + 1]) for i in range(len(gaps))]
    events = [{"partition": 0, "seq": s, "prevSeq": p} for p, s in zip([0, *seqs], seqs, strict=False)]
    tracker = SequenceTracker()
    tracker.start_at(0, 0)
    accepted: list[int] = []
    for index in data.draw(st.lists(st.integers(0, len(events) - 1), max_size=40)):
        expected = (
            SequenceCheck.NEXT
            if index == len(accepted)
            else SequenceCheck.GAP
            if index > len(accepted)
            else SequenceCheck.DUPLICATE
        )
        assert tracker.check(dict(events[index])) is expected
        if expected is SequenceCheck.NEXT:
            accepted.append(events[index]["seq"])
    assert accepted == seqs[: len(accepted)]


def test_a_snapshot_starts_a_new_chain():
    tracker = SequenceTracker()
    tracker.start_at(0, 9)
    assert tracker.check({"partition": 0, "seq": 8, "prevSeq": 7}) is SequenceCheck.DUPLICATE
    assert tracker.check({"partition": 0, "seq": 12, "prevSeq": 9}) is SequenceCheck.NEXT
    assert tracker.check({"partition": 0, "seq": 5, "prevSeq": None}) is SequenceCheck.NEXT
    assert tracker.seqs == {0: 5}

"""Offsets as text, and the split of a range into tasks."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from vedette.pipeline.offsets import SINGLE_TASK_ROWS, encode_offset, plan_ranges


def test_the_text_of_an_offset():
    """Spark stores this text in checkpoints. A change of it needs a new OFFSET_FORMAT."""
    assert json.dumps(encode_offset(1, 2)) == '{"format": 2, "offset": 1, "index_version": 2}'
    complete = encode_offset(5, 7, modes={9: "shedding", 3: "degraded"}, heartbeat=4, watermark_ms=1_700)
    assert json.dumps(complete) == (
        '{"format": 2, "offset": 5, "index_version": 7, "modes": {"3": "degraded", "9": "shedding"}, '
        '"heartbeat": 4, "watermark_ms": 1700}'
    )


def test_equal_offsets_have_equal_text():
    modes = {9: "shedding", 3: "degraded"}
    one, other = encode_offset(1, 2, modes=modes), encode_offset(1, 2, modes=dict(reversed(modes.items())))
    assert json.dumps(one) == json.dumps(other)
    (range_,) = plan_ranges(encode_offset(0, 2), one, 1, None)
    assert (range_.shedding, range_.degraded) == (frozenset({9}), frozenset({3}))


def test_an_empty_range_has_no_task():
    assert plan_ranges(encode_offset(5, 1), encode_offset(5, 1), 4, None) == []


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(1, 8), st.none() | st.integers(0, 10_000))
def test_the_tasks_cover_the_range_and_its_backfill(after: int, rows: int, shares: int, lowest: int | None):
    start, end = encode_offset(after, 1), encode_offset(after + rows, 2)
    ranges = plan_ranges(start, end, shares, lowest)
    count = 1 if rows < SINGLE_TASK_ROWS else shares
    assert [(r.share, r.shares) for r in ranges] == [(n, count) for n in range(count)]
    assert {(r.start_offset, r.end_offset, r.index_version) for r in ranges} == {(after, after + rows, 2)}
    backfill = lowest if lowest is not None and lowest < after else None
    newer_than = 1 if backfill is not None else -1
    assert {(r.backfill_after, r.backfill_newer_than) for r in ranges} == {(backfill, newer_than)}

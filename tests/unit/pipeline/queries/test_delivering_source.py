"""What came of the ranges of a batch, put together."""

from __future__ import annotations

from vedette.pipeline.queries.delivering_source import sum_of_counts
from vedette.pipeline.schema import OUTCOME


def test_counts_of_all_ranges_are_added_up() -> None:
    told = sum_of_counts(['{"changes": 3, "match_ms": 0.5}', '{"changes": 4, "match_ms": 1.25, "shed": 1}'])
    assert told == dict.fromkeys(OUTCOME.names, 0) | {"changes": 7, "match_ms": 1.75, "shed": 1}


def test_a_batch_without_ranges_has_all_counts() -> None:
    assert sum_of_counts([]) == dict.fromkeys(OUTCOME.names, 0)

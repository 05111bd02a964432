"""The counts of batches reach those who steer, each once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vedette.pipeline.queries.changes import COUNTS_METRIC
from vedette.pipeline.service import PipelineProcess
from vedette.pipeline.task import COUNTS_COLUMN


@pytest.fixture
def service(tmp_path: Path) -> Iterator[PipelineProcess]:
    service = PipelineProcess(tmp_path, secret="s")
    yield service
    for opened in (service._keeper, service._handshake, service._states, service._registry, service._journal):
        opened.close()


def judge(service: PipelineProcess, *batches: int) -> None:
    """A look at a query that has ended these batches."""
    found = [
        {
            "batchId": number,
            "observedMetrics": {COUNTS_METRIC: {COUNTS_COLUMN: [f'{{"matches": {number}}}']}},
            "durationMs": {},
        }
        for number in batches
    ]
    service._record_batches(SimpleNamespace(recentProgress=found), found[-1])  # type: ignore[arg-type]


def test_batches_are_counted_also_when_their_numbers_begin_again(
    service: PipelineProcess, monkeypatch: pytest.MonkeyPatch
):
    told: list[Any] = []
    monkeypatch.setattr(service._steering, "record_batch", lambda counts, _: told.append(counts["matches"]))
    judge(service, 40, 41)
    judge(service, 40, 41, 42)
    service._reset_after_journal_gap()
    judge(service, 0, 1)
    judge(service, 0, 1, 2)
    assert told == [40, 41, 42, 0, 1, 2]

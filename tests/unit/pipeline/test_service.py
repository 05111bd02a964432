"""The counts of batches reach those who steer, each once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vedette.pipeline.queries.changes import METRICS
from vedette.pipeline.queries.delivering_source import COUNTS
from vedette.pipeline.service import PipelineService


@pytest.fixture
def service(tmp_path: Path) -> Iterator[PipelineService]:
    service = PipelineService(tmp_path, secret="s")
    yield service
    for opened in (service._keeper, service._handshake, service._states, service._registry, service._journal):
        opened.close()


def judge(service: PipelineService, *batches: int) -> None:
    """A look at a query that has ended these batches."""
    found = [
        {
            "batchId": number,
            "observedMetrics": {METRICS: {COUNTS: [f'{{"matches": {number}}}']}},
            "durationMs": {},
        }
        for number in batches
    ]
    service._judge(SimpleNamespace(recentProgress=found), found[-1])  # type: ignore[arg-type]


def test_batches_are_counted_also_when_their_numbers_begin_again(
    service: PipelineService, monkeypatch: pytest.MonkeyPatch
):
    told: list[Any] = []
    monkeypatch.setattr(service._steering, "batch", lambda counts, _: told.append(counts["matches"]))
    judge(service, 40, 41)
    judge(service, 40, 41, 42)
    service._give_up_the_gap()
    judge(service, 0, 1)
    judge(service, 0, 1, 2)
    assert told == [40, 41, 42, 0, 1, 2]

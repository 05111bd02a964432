"""The counters of a task, and when a task opens the registry."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from vedette.pipeline.task import COUNTS_COLUMN, Counters, PipelineConfig, Task


def test_the_json_form_has_a_key_for_every_counter():
    (text,) = Counters(changes=3, retried_changes=1, match_ms=0.5).to_batch()[COUNTS_COLUMN].to_pylist()
    assert text == (
        '{"changes":3,"deliveries":0,"matches":0,"undeliverable":0,"quarantined":0,"skipped":0,"shed":0,'
        '"broadcast":0,"retried_changes":1,"candidates":0,"faults":0,"absent_keys":0,"false_positive_keys":0,'
        '"match_ms":0.5}'
    )


def test_counts_of_all_tasks_are_added():
    total = Counters.sum(['{"changes": 3, "match_ms": 0.5}', '{"changes": 4, "match_ms": 1.25, "shed": 1}'])
    assert total == Counters(changes=7, match_ms=1.75, shed=1)


def test_a_batch_without_tasks_has_zero_for_every_counter():
    assert set(msgspec.structs.asdict(Counters.sum([])).values()) == {0}


def test_a_task_without_deliveries_opens_no_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A replay has no registry: an empty address would create one in the current folder."""
    monkeypatch.chdir(tmp_path)
    Task.start(PipelineConfig(journal_url="", registry_url="", index_folder=tmp_path))
    assert list(tmp_path.iterdir()) == []

"""The pipeline process without Spark: lost checkpoints, and the order in which mode changes are applied."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from vedette.control.lag_policy import ModeChange
from vedette.processes.pipeline_process import PipelineProcess
from vedette.sources.records import Source


@pytest.fixture
def process(tmp_path: Path) -> Iterator[PipelineProcess]:
    process = PipelineProcess(tmp_path, secret="s")
    yield process
    process.close()


def test_a_journal_gap_starts_a_new_epoch_and_a_new_checkpoint(process: PipelineProcess, tmp_path: Path):
    process._journal.add_source(Source(name="shop", kind="mongodb", address="", partitions=1))
    (before,) = process._journal.partitions()
    (tmp_path / "checkpoint").mkdir()
    process._prepare_restart("another failure")
    assert (tmp_path / "checkpoint").exists()
    assert process._journal.partitions() == [before]
    process._prepare_restart("E6006: the journal does not reach back so far")
    assert not (tmp_path / "checkpoint").exists()
    (after,) = process._journal.partitions()
    assert after.epoch > before.epoch


def test_a_new_epoch_is_published_while_the_mode_is_still_in_force(
    process: PipelineProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.WARNING, "vedette.audit")
    process._journal.add_source(Source(name="shop", kind="mongodb", address="", partitions=1))
    (before,) = process._journal.partitions()
    published: list[tuple[int, dict[int, str]]] = []

    def publish() -> None:
        (partition,) = process._journal.partitions()
        published.append((partition.epoch, dict(process._registry.modes())))

    monkeypatch.setattr(process._status_feed, "publish", publish)
    degrade = ModeChange(partition=before.id, before="normal", mode="degraded", reason="lag")
    recover = ModeChange(partition=before.id, before="degraded", mode="normal", reason="caught up")
    process._apply_mode_changes([degrade])
    assert published == []
    assert process._registry.modes() == {before.id: "degraded"}
    process._apply_mode_changes([recover])
    ((epoch, modes),) = published
    assert epoch > before.epoch
    assert modes == {before.id: "degraded"}
    assert process._registry.modes() == {}
    assert [r.action for r in caplog.records if r.name == "vedette.audit"] == ["route.mode"] * 2  # type: ignore[attr-defined]

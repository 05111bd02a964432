"""Maintenance deletes rows of ended subscriptions once no kept index version needs them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from vedette.processes.pipeline_maintenance import TRIM_SECONDS
from vedette.processes.pipeline_process import PipelineProcess
from vedette.subscriptions.index.compactor import KEEP_MS
from vedette.subscriptions.index.versions import latest_version, oldest_version, open_version
from vedette.subscriptions.registry.records import SubscriptionRequest
from vedette.subscriptions.spec import SubscriptionSpec
from vedette.testing import ManualClock


class Process:
    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, ManualClock()
        self.process = PipelineProcess(folder, secret="s", clock=self.clock)
        self.registry = self.process._registry
        self.registry.acquire_lease("g", "/nowhere", 100_000)

    def register(self, id: str) -> None:
        request = SubscriptionRequest(
            id=id,
            tenant="t",
            collection="shop::orders",
            boundary=0,
            spec=SubscriptionSpec(kind="cel", source="true"),
        )
        self.registry.register("g", [request], 100_000)

    def maintain(self) -> None:
        """One round in which everything is due."""
        self.clock.advance(TRIM_SECONDS)
        self.process._maintenance.run_once()

    def rows(self) -> int:
        (file,) = self.folder.glob("subscriptions.db")
        with closing(sqlite3.connect(file)) as db:
            return int(db.execute("SELECT COUNT(*) FROM subscriptions").fetchone()[0])


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path)
    yield process
    process.process.close()


def test_ended_subscriptions_are_deleted_once_no_kept_version_needs_them(
    process: Process, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("vedette.subscriptions.index.compactor.KEEP_VERSIONS", 2)
    index = process.folder / "index"
    process.register("stays")
    process.register("ends")
    process.maintain()
    process.registry.unregister("g", ["ends"])
    process.maintain()
    assert oldest_version(index) < latest_version(index)
    assert process.rows() == 2, "the oldest kept version was published before the end"
    for number in range(3):
        process.clock.advance(KEEP_MS / 1000 + 1)
        process.register(f"later {number}")
        process.maintain()
    assert process.rows() == 4
    segments, ended = open_version(index, latest_version(index)).collection("t", "shop::orders")
    live = {number for segment in segments for number in segment.numbers.tolist()} - set(ended.tolist())
    assert len(live) == 4

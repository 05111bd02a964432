"""What the driver does about what it sees: modes, broadcasts, figures; in the order that loses nothing."""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import msgspec
import pytest

from tests.support.paths import DOCS
from vedette.control.controller import PipelineController, ServiceObjectives
from vedette.control.status import STATUS_FILE, PipelineFigures, figures_served, figures_text, read_figures
from vedette.sources.images import encode_image
from vedette.sources.journal.seam import CollectionJournal, open_journal
from vedette.sources.records import FIRST_SCAN, Partition, QuarantinedChange, Source, SourceEvent
from vedette.subscriptions.index.versions import Compactor
from vedette.subscriptions.registry.registry import SubscriptionRegistry
from vedette.testing import ManualClock

COUNTS = {
    "changes": 100, "matches": 30, "candidates": 60, "deliveries": 40, "broadcast": 10, "absent_keys": 2_000,
    "false_positive_keys": 16, "match_ms": 3.0,
}  # fmt: skip


class Driver:
    def __init__(self, home: Path) -> None:
        self.clock = ManualClock()
        self.journal: CollectionJournal = open_journal(home, self.clock)
        self.journal.add_source(Source(name="shop", kind="mongodb", address="", partitions=1))
        self.registry = SubscriptionRegistry(home, clock=self.clock)
        self.told: list[tuple[list[Partition], dict[int, str]]] = []
        self.steering = self.begin(home)

    def begin(self, home: Path) -> PipelineController:
        def tell(partitions: list[Partition]) -> None:
            self.told.append((partitions, dict(self.registry.modes())))

        compactor = Compactor(self.registry, home / "index", self.clock)
        targets = ServiceObjectives(lag_limit_seconds=100, delivery_p99_seconds=50)
        return PipelineController(self.journal, self.registry, compactor, self.clock, targets, tell)

    def write(self, id: str) -> int:
        image = encode_image({"n": 1})
        event = SourceEvent(
            event_id=id, collection="shop::orders", key=id, after=image, created=True, time_ms=0
        )
        return self.journal.append("shop", [event], None).offset


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    driver = Driver(tmp_path)
    yield driver
    driver.registry.close()
    driver.journal.close()


def test_a_partition_that_is_behind_is_skipped_and_begins_anew(
    driver: Driver, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.WARNING, "vedette.audit")
    last = driver.write("a")
    (before,) = driver.journal.partitions()
    driver.clock.advance(95)
    (figures,) = driver.steering.check_lag(0)
    assert (figures.lag_changes, figures.lag_seconds, figures.mode) == (1, 95.0, "degraded")
    assert driver.registry.modes() == {before.id: "degraded"}
    assert driver.told == []
    (figures,) = driver.steering.check_lag(last)
    assert (figures.lag_changes, figures.mode) == (0, "normal")
    assert driver.registry.modes() == {}
    # Gateways hear of the new epoch while the mode still holds: nobody takes a later change for the whole.
    ((partitions, modes),) = driver.told
    assert modes == {before.id: "degraded"}
    assert partitions[0].epoch > before.epoch
    assert [record.action for record in caplog.records] == ["route.mode", "route.mode"]  # type: ignore[attr-defined]


def test_modes_outlive_the_driver(driver: Driver, tmp_path: Path):
    last = driver.write("a")
    driver.clock.advance(95)
    driver.steering.check_lag(0)
    again = driver.begin(tmp_path)
    (figures,) = again.check_lag(last)
    assert figures.mode == "normal"
    assert len(driver.told) == 1, "whoever was passed over is told so by the next driver"


def test_broadcasts_are_audited_with_their_reason(driver: Driver, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING, "vedette.audit")
    driver.steering.record_batch(COUNTS | {"false_positive_keys": 200}, 0.1)
    assert driver.registry.fan_out() == 3
    driver.clock.advance(61)
    driver.steering.record_batch(COUNTS, 0.1)
    assert driver.registry.fan_out() == 0
    audited = [record for record in caplog.records if record.name == "vedette.audit"]
    assert [record.action for record in audited] == ["route.broadcast"] * 2  # type: ignore[attr-defined]
    assert "10.0%" in audited[0].reason  # type: ignore[attr-defined]


def test_figures(driver: Driver, tmp_path: Path):
    driver.write("a")
    for _ in range(2):
        driver.steering.record_batch(COUNTS, 0.5)
    figures = driver.steering.figures(state="running", partitions=driver.steering.check_lag(0))
    assert figures.events_per_second == 200
    assert figures.match_hit_rate == 0.5
    assert figures.bloom_false_positive_rate == 0.008
    assert figures.broadcast_ratio == 0.25
    text = figures_text(figures).decode()
    assert "vedette_pipeline_changes_total 200.0" in text
    assert 'vedette_pipeline_partition_lag_changes{partition="1",source="shop"} 1.0' in text
    assert read_figures(tmp_path) is None
    (tmp_path / STATUS_FILE).write_bytes(msgspec.json.encode(figures))
    assert read_figures(tmp_path) == figures
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with figures_served(tmp_path, port), urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        assert answer.read().decode() == text


def test_a_pipeline_that_was_killed_is_not_running_for_ever(tmp_path: Path):
    """It could not say so, and somebody waits for the alert."""
    running = PipelineFigures(state="running")
    path = tmp_path / STATUS_FILE
    path.write_bytes(msgspec.json.encode(running))
    assert read_figures(tmp_path) == running
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 100))
    found = read_figures(tmp_path)
    assert found is not None
    assert (found.state, "100 s" in found.problem) == ("stopped", True)


def test_a_first_scan_is_no_loss(driver: Driver):
    """It may take hours, and nobody should be called for it."""

    def stale() -> bool:
        figures = driver.steering.figures(state="running", partitions=driver.steering.check_lag(0))
        return 'partition_stale{partition="1",source="shop"} 1.0' in figures_text(figures).decode()

    assert not stale()
    driver.journal.set_state("shop", "catching-up", FIRST_SCAN)
    assert not stale()
    driver.journal.set_state("shop", "catching-up", "a scan bridges the gap")
    assert stale()


def test_what_readers_quarantined_is_counted(driver: Driver):
    driver.journal.quarantine(
        QuarantinedChange(source="shop", event_id="e", reason="no object", excerpt="[]", time_ms=1)
    )
    assert driver.steering.figures(state="running").totals["quarantined"] == 1


def test_rules_and_dashboard_ask_for_figures_that_there_are():
    docs = DOCS / "operations"
    one = PipelineFigures(state="running", batch_ms=1.0)
    shown = {line.split()[2] for line in figures_text(one).decode().splitlines() if line.startswith("# TYPE")}
    for file in ("alerts.yml", "dashboard.json"):
        asked = set(re.findall(r"\bvedette_pipeline_\w+", (docs / file).read_text()))
        assert asked
        assert asked <= shown, file


def test_who_joins_and_leaves_the_ring_is_audited(driver: Driver, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "vedette.audit")

    def told() -> list[tuple[str, str]]:
        driver.steering.check_lag(0)
        records = [r for r in caplog.records if getattr(r, "action", "") == "route.member"]
        caplog.clear()
        return [(getattr(r, "gateway", ""), getattr(r, "reason", "")) for r in records]

    assert told() == []
    driver.registry.acquire_lease("one", "here:1", 10)
    driver.registry.acquire_lease("two", "there:1", 30)
    assert told() == [("one", "joined"), ("two", "joined")]
    assert told() == []
    driver.clock.advance(11)
    assert told() == [("one", "left")]

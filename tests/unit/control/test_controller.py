"""What the controller decides: modes of lagging partitions, broadcasts, the status."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from vedette.control.controller import PipelineController, ServiceObjectives
from vedette.control.lag_policy import ModeChange
from vedette.sources.images import encode_image
from vedette.sources.journal.seam import CollectionJournal, open_journal
from vedette.sources.records import QuarantinedChange, Source, SourceEvent
from vedette.subscriptions.index.compactor import Compactor
from vedette.subscriptions.registry.registry import SubscriptionRegistry
from vedette.testing import ManualClock

COUNTERS = {
    "changes": 100, "matches": 30, "candidates": 60, "deliveries": 40, "broadcast": 10, "absent_keys": 2_000,
    "false_positive_keys": 16, "match_ms": 3.0,
}  # fmt: skip


class Driver:
    """A controller over a journal and a registry in a folder."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.journal: CollectionJournal = open_journal(folder, self.clock)
        self.journal.add_source(Source(name="shop", kind="mongodb", address="", partitions=1))
        self.registry = SubscriptionRegistry(folder, clock=self.clock)
        self.controller = self.start(folder)

    def start(self, folder: Path) -> PipelineController:
        compactor = Compactor(self.registry, folder / "index", self.clock)
        objectives = ServiceObjectives(lag_limit_seconds=100, delivery_p99_seconds=50)
        return PipelineController(self.journal, self.registry, compactor, self.clock, objectives)

    def write(self, id: str) -> int:
        image = encode_image({"n": 1})
        event = SourceEvent(
            event_id=id, collection="shop::orders", key=id, after=image, created=True, time_ms=0
        )
        return self.journal.append("shop", [event], None).offset

    def apply(self, changes: list[ModeChange]) -> None:
        for change in changes:
            self.registry.set_mode(change.partition, change.mode)


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    driver = Driver(tmp_path)
    yield driver
    driver.registry.close()
    driver.journal.close()


def test_a_lagging_partition_is_degraded_and_recovers_with_a_new_epoch(driver: Driver):
    last = driver.write("a")
    driver.clock.advance(95)
    (summary,), (change,) = driver.controller.check_lag(0)
    assert (summary.lag_changes, summary.lag_seconds, summary.mode) == (1, 95.0, "degraded")
    assert (change.mode, change.new_epoch) == ("degraded", False)
    (summary,), (change,) = driver.controller.check_lag(last)
    assert (summary.lag_changes, summary.mode) == (0, "normal")
    assert (change.mode, change.new_epoch) == ("normal", True)


def test_a_new_controller_ends_the_modes_of_the_one_before(driver: Driver, tmp_path: Path):
    last = driver.write("a")
    driver.clock.advance(95)
    driver.apply(driver.controller.check_lag(0).mode_changes)
    (change,) = driver.start(tmp_path).check_lag(last).mode_changes
    assert (change.mode, change.new_epoch) == ("normal", True), "subscribers that missed changes must resync"


def test_broadcasts_are_audited_with_their_reason(driver: Driver, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING, "vedette.audit")
    driver.controller.record_batch(COUNTERS | {"false_positive_keys": 200}, 0.1)
    assert driver.registry.fan_out() == 3
    driver.clock.advance(61)
    driver.controller.record_batch(COUNTERS, 0.1)
    assert driver.registry.fan_out() == 0
    audited = [record for record in caplog.records if record.name == "vedette.audit"]
    assert [record.action for record in audited] == ["route.broadcast"] * 2  # type: ignore[attr-defined]
    assert "10.0%" in audited[0].reason  # type: ignore[attr-defined]


def test_the_status_has_rates_of_the_last_batches(driver: Driver):
    for _ in range(2):
        driver.controller.record_batch(COUNTERS, 0.5)
    status = driver.controller.status(state="running")
    assert status.events_per_second == 200
    assert status.match_hit_rate == 0.5
    assert status.bloom_false_positive_rate == 0.008
    assert status.broadcast_ratio == 0.25
    assert status.totals["changes"] == 200


def test_the_totals_include_changes_that_readers_quarantined(driver: Driver):
    driver.journal.quarantine(
        QuarantinedChange(source="shop", event_id="e", reason="no object", excerpt="[]", time_ms=1)
    )
    assert driver.controller.status(state="running").totals["quarantined"] == 1


def test_gateways_that_join_and_leave_the_ring_are_audited(driver: Driver, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "vedette.audit")

    def audited() -> list[tuple[str, str]]:
        driver.controller.check_lag(0)
        records = [r for r in caplog.records if getattr(r, "action", "") == "route.member"]
        caplog.clear()
        return [(getattr(r, "gateway", ""), getattr(r, "reason", "")) for r in records]

    assert audited() == []
    driver.registry.acquire_lease("one", "here:1", 10)
    driver.registry.acquire_lease("two", "there:1", 30)
    assert audited() == [("one", "joined"), ("two", "joined")]
    assert audited() == []
    driver.clock.advance(11)
    assert audited() == [("one", "left")]

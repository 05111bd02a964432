"""Sources in the handshake: health, backoff, breaker and what `wqm` says, on a clock in the test's hand."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from vedette.errors import SourceError
from vedette.handshake.degradation import LoadObservation
from vedette.handshake.priority import effective_priority
from vedette.handshake.tables import HandshakeTables
from vedette.handshake.tables.source_health import StoredSourceHealth, source_watch
from vedette.sources.journal.seam import open_journal
from vedette.sources.reader_loop import run_reader
from vedette.sources.records import Source
from vedette.testing import ManualClock

SHOP = Source(name="shop", kind="mongodb", address="mongodb://ada:secret@db/shop")
DOWN = SourceError("E6104", "connection refused")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def tables(tmp_path: Path, clock: ManualClock) -> Iterator[HandshakeTables]:
    with HandshakeTables(tmp_path / "handshake.db", clock=clock, rng=random.Random(1)) as opened:
        yield opened


@pytest.fixture
def care(tables: HandshakeTables, clock: ManualClock) -> StoredSourceHealth:
    return StoredSourceHealth(SHOP, tables, clock, random.Random(1))


def test_row_has_no_password(tables: HandshakeTables, care: StoredSourceHealth) -> None:
    (row,) = tables.watches()
    assert (row.watch_id, row.config.collection) == ("source:shop", "shop::*")
    assert row.config.path == "mongodb://ada:***@db/shop"
    assert care.seconds_until_allowed() == 0
    care.unregister()
    care.unregister()
    assert tables.watches() == []


def test_backoff_and_recovery(tables: HandshakeTables, care: StoredSourceHealth, clock: ManualClock) -> None:
    for status in ("degraded", "degraded", "backoff"):
        assert care.seconds_until_allowed() == 0
        assert care.record_failure(DOWN) > 0
        assert tables.watch("source:shop").health.health_status == status
    assert care.seconds_until_allowed() > 0
    clock.advance(20)  # 8 s, doubled for the network, and the jitter
    assert care.seconds_until_allowed() == 0
    for _ in range(5):
        care.record_success()
        clock.advance(0.3)
        assert care.seconds_until_allowed() == 0
    row = tables.watch("source:shop")
    assert (row.health.health_status, row.health.consecutive_errors, row.health.total_errors) == (
        "healthy",
        0,
        3,
    )
    assert effective_priority(5, row.health, clock.now()) == 6
    assert tables.exclusions("source:shop") == []
    assert {str(each.key.type) for each in tables.patterns("source:shop")} == {"network", "time_based"}


def test_reset_closes_the_circuit_at_once(
    tables: HandshakeTables, care: StoredSourceHealth, clock: ManualClock
) -> None:
    while tables.watch("source:shop").health.circuit.state != "open":
        clock.advance(400)
        assert care.seconds_until_allowed() == 0
        care.record_failure(DOWN)
    assert tables.watch("source:shop").health.disabled_by == "circuit"
    assert care.seconds_until_allowed() > 0
    clock.advance(3_600)
    assert care.seconds_until_allowed() == 0, "a trial by itself after the cooldown"
    care.record_failure(DOWN)
    assert care.seconds_until_allowed() > 0
    tables.reset_errors("source:shop")
    tables.enable_watch("source:shop")
    assert care.seconds_until_allowed() == 0


def test_pause_disable_and_load_stop_the_source(
    tables: HandshakeTables, care: StoredSourceHealth, clock: ManualClock
) -> None:
    tables.pause_watch("source:shop")
    assert care.seconds_until_allowed() > 0
    tables.resume_watch("source:shop")
    assert care.seconds_until_allowed() == 0
    clock.advance(1)
    tables.disable_watch("source:shop")
    assert care.seconds_until_allowed() > 0
    tables.enable_watch("source:shop")
    load = LoadObservation(queue_depth=5_000, throughput=None, memory_usage=0.1)
    tables.system_state.check_load(load, [("source:shop", 5)])
    assert care.seconds_until_allowed() > 0, "severe load pauses priority 5 and lower"


def test_priority_survives_a_restart(tables: HandshakeTables, clock: ManualClock) -> None:
    for _ in range(2):
        StoredSourceHealth(SHOP, tables, clock, random.Random(1))
        tables.update_watch("source:shop", watch_priority=8)
    assert tables.register_source(source_watch(SHOP)).config.watch_priority == 8


class Flaky:
    """Fails so often, then works once and is stopped."""

    def __init__(self, failures: int, stop: Event) -> None:
        self.left, self.stop = failures, stop

    def start(self, *, scan: bool) -> None:
        pass

    def poll(self, seconds: float) -> tuple[int, int]:
        if self.left:
            self.left -= 1
            raise DOWN
        self.stop.set()
        return 0, 0

    def release_server_resources(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_reader_with_stored_health(tmp_path: Path, tables: HandshakeTables, clock: ManualClock) -> None:
    journal = open_journal(tmp_path)
    journal.add_source(SHOP)
    stop = Event()
    care = StoredSourceHealth(SHOP, tables, clock, random.Random(1))
    run_reader(Flaky(2, stop), journal, SHOP, stop, clock, care)
    row = tables.watch("source:shop")
    assert (row.health.health_status, row.health.total_errors) == ("degraded", 2)
    assert row.health.last_success_at is not None
    journal.close()

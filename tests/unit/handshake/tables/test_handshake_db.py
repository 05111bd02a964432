"""The tables apply the machines to rows, one transaction per verb; a row read back is the record that was written."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from vedette.errors import FolderError, StoreError
from vedette.handshake.config import HealthConfig, WatchFolderConfig, WatchType
from vedette.handshake.degradation import DegradationLevel, LoadObservation
from vedette.handshake.exclusions import Exclusion, ExclusionType
from vedette.handshake.failures import Failure, FailureKind
from vedette.handshake.health import WatchHealth, record_error, record_success
from vedette.handshake.tables import HandshakeTables
from vedette.testing import ManualClock

WATCH = WatchFolderConfig(
    watch_id="docs",
    path="/srv/docs",
    collection="papers",
    patterns=("*.md", "*.pdf"),
    ignore_patterns=(".git/*",),
    recursive_depth=-1,
    debounce_seconds=0.5,
    watch_type=WatchType.LIBRARY,
    library_name="Papers",
    watch_priority=7,
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def tables(tmp_path: Path, clock: ManualClock) -> Iterator[HandshakeTables]:
    with HandshakeTables(tmp_path / "handshake.db", clock=clock, rng=Random(5)) as opened:
        opened.add_watch(WATCH)
        yield opened


def failure(
    clock: ManualClock, path: str = "/srv/docs/a.pdf", kind: FailureKind = FailureKind.DATA
) -> Failure:
    return Failure(path=path, error_type="E4512", message=f"{path} is damaged", at=clock.now(), kind=kind)


def test_watch_round_trip(tables: HandshakeTables, clock: ManualClock) -> None:
    row = tables.watch("docs")
    assert row.config == WATCH
    assert row.health == WatchHealth()
    assert (row.created_at, row.last_scan, row.paused_at) == (clock.now(), None, None)
    assert tables.find_watch("/srv/docs") == tables.find_watch("docs") == row == tables.watches()[0]


def test_stored_health_equals_the_state_machine(tables: HandshakeTables, clock: ManualClock) -> None:
    rng, config, health = Random(5), HealthConfig(), WatchHealth()
    events = "eeeesessssseeeeeeeeeeeeeeeeeeeees"
    for event in events:
        clock.advance(7)
        if event == "e":
            health = record_error(health, clock.now(), "/srv/docs/x is damaged", config, rng)
            tables.record_error("docs", failure(clock, "/srv/docs/x"))
        else:
            health = record_success(health, clock.now(), config)
            tables.record_success("docs", "/srv/docs/x")
        assert tables.watch("docs").health == health
    assert (health.circuit.state, health.enabled, health.disabled_by) == ("open", False, "circuit")


def test_update_watch_keeps_health_patterns_and_exclusions(
    tables: HandshakeTables, clock: ManualClock
) -> None:
    for _ in range(5):
        tables.record_error("docs", failure(clock))
    before = tables.watch("docs")
    assert tables.patterns("docs")
    assert tables.exclusions("docs")
    tables.update_watch("docs", watch_priority=1, debounce_seconds=9.0)
    after = tables.watch("docs")
    assert after.health == before.health
    assert (after.config.watch_priority, after.config.debounce_seconds) == (1, 9.0)
    assert len(tables.patterns("docs")) == 3
    assert len(tables.exclusions("docs")) == 1


def test_source_is_registered_as_a_watch(tables: HandshakeTables, clock: ManualClock) -> None:
    shop = WatchFolderConfig(
        watch_id="shop",
        path="mongodb://db/shop",
        collection="shop",
        watch_type=WatchType.SOURCE,
        enabled=False,
    )
    assert not tables.register_source(shop).health.enabled
    tables.enable_watch("shop")
    for _ in range(3):
        tables.record_error("shop", failure(clock, "orders", FailureKind.NETWORK))
    tables.update_watch("shop", watch_priority=9)
    again = tables.register_source(replace(shop, path="mongodb://other/shop"))
    assert (again.config.watch_priority, again.health.health_status) == (9, "backoff")
    assert again.config.path == "mongodb://other/shop"
    assert again.health.enabled
    assert again.health.backoff_until is not None
    assert again.health.backoff_until - clock.now() > timedelta(seconds=14), (
        "network errors double the backoff"
    )


def test_remove_watch_removes_patterns_and_exclusions(tables: HandshakeTables, clock: ManualClock) -> None:
    for _ in range(5):
        tables.record_error("docs", failure(clock))
    tables.remove_watch("docs")
    for call in (tables.watch, tables.patterns, tables.exclusions, tables.remove_watch, tables.find_watch):
        with pytest.raises(FolderError, match="E4501"):
            call("docs")
    tables.add_watch(WATCH)
    assert tables.patterns("docs") == []
    assert tables.exclusions("docs") == []


def test_fifth_consecutive_failure_excludes_a_file(tables: HandshakeTables, clock: ManualClock) -> None:
    for _ in range(4):
        assert tables.record_error("docs", failure(clock)).new_exclusions == ()
    tables.record_success("docs", "/srv/docs/a.pdf")
    for _ in range(4):
        assert tables.record_error("docs", failure(clock)).new_exclusions == ()
    (made,) = tables.record_error("docs", failure(clock)).new_exclusions
    assert (made.value, made.error_count, made.is_permanent) == ("/srv/docs/a.pdf", 5, True)
    tables.record_error("docs", failure(clock))
    assert [each.error_count for each in tables.exclusions("docs")] == [6], "counted, not added up"
    assert tables.remove_exclusions("docs", "/srv/docs/a.pdf")[0].value == "/srv/docs/a.pdf"
    assert tables.exclusions("docs") == []
    assert tables.record_error("docs", failure(clock)).new_exclusions == (), "its count begins anew"


@pytest.mark.parametrize("kind", [FailureKind.SINK, FailureKind.GONE])
def test_failures_of_other_domains_do_not_count(
    tables: HandshakeTables, clock: ManualClock, kind: FailureKind
) -> None:
    for _ in range(60):
        tables.record_error("docs", failure(clock, kind=kind))
    assert tables.watch("docs").health == WatchHealth()
    assert tables.patterns("docs") == []


def test_reset_can_clear_patterns(tables: HandshakeTables, clock: ManualClock) -> None:
    for number in range(20):
        tables.record_error("docs", failure(clock, f"/srv/docs/{number}.pdf"))
    assert tables.watch("docs").health.health_status == "disabled"
    assert tables.reset_errors("docs").health_status == "healthy"
    assert tables.patterns("docs")[0].is_systematic
    tables.reset_errors("docs", clear_patterns=True)
    assert tables.patterns("docs") == []
    assert tables.enable_watch("docs").enabled


def test_refresh_ends_the_cooldown(tables: HandshakeTables, clock: ManualClock) -> None:
    for number in range(20):
        tables.record_error("docs", failure(clock, f"/srv/docs/{number}.pdf"))
    assert tables.refresh_watch("docs").health.circuit.state == "open"
    clock.advance(3_600)
    assert tables.refresh_watch("docs").health.circuit.state == "half_open"
    recorded = tables.record_outcomes("docs", succeeded=["/srv/docs/a", "/srv/docs/b", "/srv/docs/c"])
    assert (recorded.health.enabled, recorded.health.health_status) == (True, "degraded")
    assert tables.mark_healthy("docs").health_status == "healthy"


def test_exclusions_expire_and_are_unique_by_type(tables: HandshakeTables, clock: ManualClock) -> None:
    for type in ExclusionType:
        exclusion = Exclusion(
            type=type,
            value="/srv/docs/tmp",
            reason="for an hour",
            error_count=0,
            created_at=clock.now(),
            expires_at=clock.now() + timedelta(hours=1),
        )
        tables.add_exclusion("docs", exclusion)
        assert exclusion in tables.exclusions("docs")
    assert len(tables.exclusions("docs")) == 3
    clock.advance(3_600)
    assert tables.exclusions("docs") == []
    assert len(tables.exclusions("docs", also_expired=True)) == 3


def test_pause_rescan_mode_and_availability(tables: HandshakeTables, clock: ManualClock) -> None:
    assert tables.pause_watch("docs").paused_at == clock.now()
    assert tables.resume_watch("docs").paused_at is None
    assert tables.set_watch_mode("docs", "polling").watch_mode == "polling"
    first = tables.set_availability("docs", "its disk is gone").unavailable_since
    clock.advance(5)
    assert tables.set_availability("docs", "still gone").unavailable_since == first
    assert tables.set_availability("docs", None).unavailable_reason is None
    asked = tables.request_rescan("docs").rescan_requested_at
    assert asked is not None
    assert tables.record_scan("docs", asked - timedelta(seconds=1)).rescan_requested_at == asked
    done = tables.record_scan("docs", asked)
    assert (done.rescan_requested_at, done.last_scan) == (None, asked)


def test_load_pauses_and_resumes_watches(tables: HandshakeTables, clock: ManualClock) -> None:
    watches = [("docs", 7), ("logs", 2)]
    assert tables.system_state.degradation().level is DegradationLevel.NORMAL
    decision = tables.system_state.check_load(LoadObservation(queue_depth=3_000), watches)
    assert decision.newly_paused == ("logs",)
    stored = tables.system_state.degradation()
    assert (stored.level, stored.paused_watch_ids) == (DegradationLevel.MODERATE, ("logs",))
    assert stored.polling_interval_multiplier == 2.0
    for seconds in (60, 10, 10):
        clock.advance(seconds)
        decision = tables.system_state.check_load(LoadObservation(queue_depth=0, throughput=None), watches)
    assert (decision.state.level, decision.resumed) == (DegradationLevel.LIGHT, ("logs",))


def test_sink_breaker_is_stored(tables: HandshakeTables, clock: ManualClock) -> None:
    for _ in range(5):
        tables.system_state.record_sink_failure()
    assert tables.system_state.admit_sink_tasks(10, 0).max_tasks == 0
    clock.advance(30)
    assert tables.system_state.admit_sink_tasks(10, 0).max_tasks == 1
    assert tables.system_state.sink_breaker().state == "half_open"
    tables.system_state.record_sink_success()
    assert tables.system_state.admit_sink_tasks(10, 0).max_tasks == 10


def test_capacity_is_stored(tables: HandshakeTables) -> None:
    assert tables.system_state.request_capacity("docs", 2_000, 0).granted
    assert not tables.system_state.request_capacity("docs", 1, 0).granted
    assert tables.system_state.release_capacity("docs", 500, 0).tasks_by_watch == {"docs": 1_500}
    assert tables.system_state.release_capacity("docs", 2_000, 0).tasks_by_watch == {}
    assert tables.system_state.reconcile_capacity({"docs": 3, "logs": 0}, 3).tasks_by_watch == {"docs": 3}
    assert tables.system_state.reconcile_capacity({"docs": 3}, 8_000).throttling
    assert tables.system_state.reconcile_capacity({}, 5_000).throttling, "until it falls below the low mark"
    assert not tables.system_state.reconcile_capacity({}, 4_999).throttling


def test_ids_are_unique_but_paths_need_not_be(tables: HandshakeTables) -> None:
    with pytest.raises(FolderError, match="an id that no other watch has"):
        tables.add_watch(WATCH)
    tables.add_watch(replace(WATCH, watch_id="again"))
    with pytest.raises(FolderError, match="name one of again, docs"):
        tables.find_watch("/srv/docs")
    with pytest.raises(FolderError, match="E4502"):
        tables.update_watch("docs", enabled=False)


def test_foreign_file_is_refused_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "handshake.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE mine (x)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="E6004"):
        HandshakeTables(path)
    with sqlite3.connect(path) as db:
        assert [name for (name,) in db.execute("SELECT name FROM sqlite_schema")] == ["mine"]
    db.close()
    assert before[:16] == path.read_bytes()[:16]


def test_newer_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "handshake.db"
    HandshakeTables(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreError, match="reads formats up to 3"):
        HandshakeTables(path)


@pytest.mark.parametrize(
    "change",
    [
        "health_status = 'half_open'",
        "circuit_state = 'ajar'",
        "watch_priority = 11",
        "watch_type = 'folder'",
        "disabled_by = 'me'",
    ],
)
def test_table_rejects_unknown_states(tables: HandshakeTables, change: str) -> None:
    with sqlite3.connect(tables.path) as db, pytest.raises(sqlite3.IntegrityError):
        db.execute(f"UPDATE watch_folders SET {change}")
    db.close()

"""Outcomes of files change the health of their watches and the circuit breaker of the sink."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from vedette.handshake.config import WatchFolderConfig
from vedette.handshake.failures import Failure, FailureKind
from vedette.handshake.tables import HandshakeTables
from vedette.search.folders.outcomes import record_file_outcomes
from vedette.search.ingestion import FileOutcome, IngestRequest, OutcomeStatus
from vedette.testing import ManualClock

CLOCK = ManualClock()


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[HandshakeTables]:
    with HandshakeTables(tmp_path / "handshake.db", clock=CLOCK) as opened:
        for watch_id in ("v", "w"):
            opened.add_watch(WatchFolderConfig(watch_id=watch_id, path=f"/{watch_id}", collection="docs"))
        yield opened


def outcome(watch_id: str, kind: FailureKind | None = None, *, delete: bool = False) -> FileOutcome:
    path = f"/{watch_id}/a"
    failure = None
    if kind is not None:
        failure = Failure(path=path, error_type="E4512", message="damaged", at=CLOCK.now(), kind=kind)
    return FileOutcome(
        file=IngestRequest(path=path, watch_id=watch_id, collection="docs", delete=delete),
        status=OutcomeStatus.INGESTED if failure is None else OutcomeStatus.FAILED,
        failure=failure,
    )


def test_each_watch_gets_its_own_outcomes(tables: HandshakeTables) -> None:
    record_file_outcomes(
        tables,
        [outcome("v"), outcome("w", FailureKind.DATA), outcome("removed"), outcome("v", delete=True)],
    )
    assert tables.watch("v").health.consecutive_successes == 1
    assert tables.watch("w").health.total_errors == 1
    assert tables.system_state.sink_breaker().consecutive_errors == 0


def test_sink_failure_counts_against_the_sink_only(tables: HandshakeTables) -> None:
    record_file_outcomes(tables, [outcome("v"), outcome("w", FailureKind.SINK)])
    assert tables.watch("w").health.total_errors == 0
    assert tables.system_state.sink_breaker().consecutive_errors == 1
    record_file_outcomes(tables, [outcome("w")])
    assert tables.system_state.sink_breaker().consecutive_errors == 0
    record_file_outcomes(tables, [])
    assert tables.system_state.sink_breaker().consecutive_errors == 0

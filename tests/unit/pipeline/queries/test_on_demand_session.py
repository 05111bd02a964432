"""When files go to Spark: not before many wait, not while it starts, and not for a while after it failed."""

from __future__ import annotations

from typing import Any

import pytest

from vedette.pipeline.queries.file_rows import RESULT_ROWS
from vedette.pipeline.queries.on_demand_session import BulkThresholds, OnDemandSession
from vedette.testing import ManualClock

CONFIG = BulkThresholds(
    start_at_files=1_000, min_batch_files=256, batch_files=512, idle_seconds=120, retry_seconds=300
)


class Sessions:
    """Counts opened and closed sessions. Opening fails if `fails` is set; every job fails."""

    def __init__(self) -> None:
        self.opened = self.closed = 0
        self.fails = False

    def open(self) -> Any:
        self.opened += 1
        if self.fails:
            raise RuntimeError("no Java")
        return self

    def close(self, _session: Any) -> None:
        self.closed += 1

    def createDataFrame(self, _rows: Any) -> Any:
        raise ConnectionError("the JVM is gone")


@pytest.fixture
def sessions() -> Sessions:
    return Sessions()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def session(sessions: Sessions, clock: ManualClock) -> OnDemandSession:
    return OnDemandSession(sessions.open, sessions.close, clock, CONFIG)


def started(session: OnDemandSession) -> None:
    session.batch_size(CONFIG.start_at_files)
    opening = session._opening
    if opening is not None:
        opening.join()


def test_few_files_do_not_open_a_session(session: OnDemandSession, sessions: Sessions) -> None:
    assert session.batch_size(999) == 0
    assert sessions.opened == 0
    started(session)
    assert sessions.opened == 1
    assert [session.batch_size(waiting) for waiting in (1_000, 256, 255)] == [512, 512, 0]
    session.close()
    assert sessions.closed == 1


def test_an_idle_session_is_closed_and_opens_again(
    session: OnDemandSession, sessions: Sessions, clock: ManualClock
) -> None:
    started(session)
    clock.advance(119)
    assert (session.batch_size(10), sessions.closed) == (0, 0)
    assert session.batch_size(300) == 512, "a backlog postpones the end"
    clock.advance(119)
    assert (session.batch_size(10), sessions.closed) == (0, 0)
    clock.advance(1)
    assert (session.batch_size(10), sessions.closed) == (0, 1)
    started(session)
    assert (sessions.opened, session.batch_size(1_000)) == (2, 512)


def test_a_failed_start_is_retried_later(
    session: OnDemandSession, sessions: Sessions, clock: ManualClock
) -> None:
    sessions.fails = True
    started(session)
    for _ in range(3):
        clock.advance(99)
        assert (session.batch_size(5_000), sessions.opened) == (0, 1)
    clock.advance(3)
    sessions.fails = False
    started(session)
    assert (sessions.opened, session.batch_size(5_000)) == (2, 512)


def test_a_session_that_fails_is_closed(
    session: OnDemandSession, sessions: Sessions, clock: ManualClock
) -> None:
    started(session)
    with pytest.raises(ConnectionError):
        session.run(None, iter, RESULT_ROWS)
    assert (sessions.closed, session.batch_size(5_000)) == (1, 0)
    with pytest.raises(RuntimeError, match="has not started"):
        session.run(None, iter, RESULT_ROWS)
    clock.advance(300)
    started(session)
    assert session.batch_size(5_000) == 512

"""When files go to Spark: not before many wait, not while it starts, not for a while after it failed. Without Spark."""

from __future__ import annotations

from threading import Condition
from typing import Any

import pytest

from vedette.pipeline.queries.file_batches import (
    BulkThresholds,
    FileJobConfig,
    OnDemandSession,
    SparkPreparation,
)
from vedette.pipeline.queries.file_rows import encode_prepared
from vedette.search.chunking import ChunkingConfig
from vedette.search.embedding import HashingEmbedder
from vedette.search.preparation import NothingToStore, PrepareRequest
from vedette.testing import ManualClock

CONFIG = BulkThresholds(
    start_at_files=1_000, min_batch_files=256, batch_files=512, idle_seconds=120, retry_seconds=300
)


class Sessions:
    """Stands in for Spark: what was opened and closed, and whether it opens at all."""

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
        raise ConnectionError("Java is gone")


@pytest.fixture
def sessions() -> Sessions:
    return Sessions()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def desk(sessions: Sessions, clock: ManualClock) -> OnDemandSession:
    return OnDemandSession(sessions.open, sessions.close, clock, CONFIG)


def started(desk: OnDemandSession) -> None:
    desk.batch_size(CONFIG.start_at_files)
    opening = desk._opening
    if opening is not None:
        opening.join()


def test_few_files_do_not_start_it(desk: OnDemandSession, sessions: Sessions) -> None:
    assert desk.batch_size(999) == 0
    assert sessions.opened == 0
    started(desk)
    assert sessions.opened == 1
    assert [desk.batch_size(waiting) for waiting in (1_000, 256, 255)] == [512, 512, 0]
    desk.close()
    assert sessions.closed == 1


def test_it_is_stopped_when_idle_and_started_again(
    desk: OnDemandSession, sessions: Sessions, clock: ManualClock
) -> None:
    started(desk)
    clock.advance(119)
    assert (desk.batch_size(10), sessions.closed) == (0, 0)
    assert desk.batch_size(300) == 512, "work puts the end off"
    clock.advance(119)
    assert (desk.batch_size(10), sessions.closed) == (0, 0)
    clock.advance(1)
    assert (desk.batch_size(10), sessions.closed) == (0, 1)
    started(desk)
    assert (sessions.opened, desk.batch_size(1_000)) == (2, 512)


def test_without_java_everything_else_works(
    desk: OnDemandSession, sessions: Sessions, clock: ManualClock
) -> None:
    sessions.fails = True
    started(desk)
    for _ in range(3):
        clock.advance(99)
        assert (desk.batch_size(5_000), sessions.opened) == (0, 1)
    clock.advance(3)
    sessions.fails = False
    started(desk)
    assert (sessions.opened, desk.batch_size(5_000)) == (2, 512)


def test_a_session_that_fails_is_given_up(
    desk: OnDemandSession, sessions: Sessions, clock: ManualClock
) -> None:
    started(desk)
    with pytest.raises(ConnectionError):
        desk.run(None, None)  # type: ignore[arg-type]
    assert (sessions.closed, desk.batch_size(5_000)) == (1, 0)
    with pytest.raises(RuntimeError, match="has not started"):
        desk.run(None, None)  # type: ignore[arg-type]
    clock.advance(300)
    started(desk)
    assert desk.batch_size(5_000) == 512


class Executors:
    """Stands in for the desk: answers jobs of two files, and says when each was begun."""

    config = BulkThresholds(job_files=2)

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.bell = Condition()

    def run(self, rows: Any, _recipe: FileJobConfig) -> Any:
        with self.bell:
            self.begun.append(rows.num_rows)
            self.bell.notify_all()
        return encode_prepared(range(rows.num_rows), [NothingToStore.GONE] * rows.num_rows)

    def wait_for(self, jobs: int) -> bool:
        with self.bell:
            return self.bell.wait_for(lambda: len(self.begun) >= jobs, 60)


def test_while_answers_are_stored_the_next_job_runs_and_no_more() -> None:
    executors = Executors()
    recipe = FileJobConfig(embedder="hashing", chunking=ChunkingConfig(), max_file_bytes=1_000)
    preparation = SparkPreparation(executors, recipe, HashingEmbedder())  # type: ignore[arg-type]
    answers = preparation.prepare([PrepareRequest(path=f"/{number}") for number in range(7)])
    assert next(answers) is NothingToStore.GONE
    assert executors.wait_for(2), "the second job does not wait until the first is stored"
    assert next(answers) is NothingToStore.GONE
    assert executors.begun == [2, 2], "what is prepared is in memory: one job ahead"
    assert list(answers) == [NothingToStore.GONE] * 5
    assert executors.begun == [2, 2, 2, 1]

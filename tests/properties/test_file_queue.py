"""The file queue on an engine and its in-memory twin behave the same for any sequence of calls."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import vedette
from vedette.errors import FolderError
from vedette.search.file_queue.engine_queue import QUEUE_DATABASE, EngineFileQueue
from vedette.search.file_queue.tasks import FileOperation, FileQueue, FileTask
from vedette.testing import ManualClock
from vedette.testing.file_queue import MemoryFileQueue

PATHS = st.sampled_from(["/a", "/b", "/c", "/d", "/e"])
DELAYS = st.sampled_from([0, 2, 40, 90]).map(lambda seconds: timedelta(seconds=seconds))
STEP_SECONDS = 0.5
"""Seconds between two steps, so that no two tasks have the same age. Exact in binary, so that both clocks agree."""


class QueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock, self.closing = ManualClock(), ExitStack()
        directory = Path(self.closing.enter_context(tempfile.TemporaryDirectory()))
        queue_vedette = self.closing.enter_context(vedette.open(":memory:", clock=self.clock))
        self.engine = self.closing.enter_context(
            EngineFileQueue(queue_vedette.database(QUEUE_DATABASE), directory / "handshake.db")
        )
        self.twin = MemoryFileQueue(self.clock)
        self.claims: list[tuple[str, str]] = []
        """Claims of the engine and of the twin, also those that have ended."""

    def teardown(self) -> None:
        self.closing.close()

    @rule(
        path=PATHS,
        operation=st.sampled_from(FileOperation),
        priority=st.integers(0, 10),
        watch=st.sampled_from("vw"),
    )
    def put(self, path: str, operation: FileOperation, priority: int, watch: str) -> None:
        task = FileTask(path=path, watch_id=watch, collection="c", operation=operation, priority=priority)
        for queue in (self.engine, self.twin):
            queue.put([task])

    @rule(limit=st.integers(1, 4))
    def claim(self, limit: int) -> None:
        engine_claims, twin_claims = self.engine.claim(limit, "me"), self.twin.claim(limit, "me")
        assert [(each.task, each.failed_attempts) for each in engine_claims] == [
            (each.task, each.failed_attempts) for each in twin_claims
        ]
        self.claims += [
            (one.claim_id, two.claim_id) for one, two in zip(engine_claims, twin_claims, strict=True)
        ]

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        engine_claims, twin_claims = data.draw(st.sampled_from(self.claims))
        assert bool(self.engine.ack([engine_claims])) == bool(self.twin.ack([twin_claims]))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), delay=DELAYS, retry=st.booleans(), counts=st.booleans())
    def nack(self, data: st.DataObject, delay: timedelta, retry: bool, counts: bool) -> None:
        claims = data.draw(st.sampled_from(self.claims))

        def nack_claim(queue: FileQueue, claim_id: str) -> None:
            queue.nack(claim_id, error="no", retry=retry, delay=delay, counts_attempt=counts)

        assert _outcome(nack_claim, self.engine, claims[0]) == _outcome(nack_claim, self.twin, claims[1])

    @rule(path=st.none() | PATHS)
    def retry(self, path: str | None) -> None:
        assert _outcome(self.engine.retry_dead_letters, path) == _outcome(self.twin.retry_dead_letters, path)

    @rule(seconds=st.integers(0, 100))
    def purge(self, seconds: int) -> None:
        before = self.clock.now() - timedelta(seconds=seconds)
        assert self.engine.purge_dead_letters(before) == self.twin.purge_dead_letters(before)

    @rule(watch=st.sampled_from("vw"))
    def discard(self, watch: str) -> None:
        assert self.engine.discard_watch(watch) == self.twin.discard_watch(watch)

    @rule(seconds=st.sampled_from([1, 30, 61, 100]))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @invariant()
    def both_have_the_same_tasks(self) -> None:
        self.clock.advance(STEP_SECONDS)
        rows = [
            [
                (row.task, row.status, row.attempts, row.queued_at, row.due_at, row.lease_until)
                for row in queue.list_tasks()
            ]
            for queue in (self.engine, self.twin)
        ]
        assert rows[0] == rows[1]
        assert self.engine.count_by_status() == self.twin.count_by_status()
        assert self.engine.tasks_per_watch() == self.twin.tasks_per_watch()
        assert self.engine.depth() == self.twin.depth()


def _outcome(act: object, *arguments: object) -> object:
    """Return the result of the call, or the code of its error."""
    assert callable(act)
    try:
        return act(*arguments)
    except FolderError as error:
        return error.code


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(TestQueue.settings, stateful_step_count=40, deadline=None)

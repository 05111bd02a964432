"""Intake and worker with a manual clock: admission, deferral, failures and lost workers. No change is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from vedette.errors import IngestError, StoreError
from vedette.handshake.config import WatchFolderConfig
from vedette.handshake.degradation import LoadObservation
from vedette.handshake.tables import HandshakeTables
from vedette.search.embedding import HashingEmbedder
from vedette.search.file_queue.tasks import FileOperation, TaskStatus
from vedette.search.folders.intake import FolderIntake
from vedette.search.folders.worker import IngestWorker, StepReport
from vedette.search.ingestion import VectorIngestor
from vedette.sources.files.file_stamp import ChangeKind, FileChange, FileStamp
from vedette.testing import ManualClock
from vedette.testing.file_queue import MemoryFileQueue
from vedette.testing.vectors import MemoryVectorStore

STAMP = FileStamp(1, 1, 1, 1, 1)


class Harness:
    def __init__(self, base: Path) -> None:
        self.root = base / "root"
        self.root.mkdir()
        self.clock, self.store = ManualClock(), MemoryVectorStore()
        self.tables = HandshakeTables(base / "handshake.db", clock=self.clock, rng=Random(1))
        self.tables.add_watch(WatchFolderConfig(watch_id="w", path=str(self.root), collection="docs"))
        self.queue = MemoryFileQueue(self.clock)
        self.intake = FolderIntake("w", self.tables, self.queue, self.clock)
        ingestor = VectorIngestor(HashingEmbedder(16), self.store, self.clock)
        self.worker = IngestWorker(
            self.tables, self.queue, ingestor, self.clock, worker_id="me", batch_size=10, rng=Random(1)
        )

    def create(self, *names: str, data: bytes = b"words") -> list[FileChange]:
        for name in names:
            (self.root / name).write_bytes(data)
        return [FileChange(kind=ChangeKind.CREATED, path=name, stamp=STAMP) for name in names]

    def stored(self) -> set[str]:
        return {Path(path).name for path in self.store.paths("docs")}


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    created = Harness(tmp_path)
    yield created
    created.tables.close()


def test_changes_become_tasks_and_tasks_become_chunks(harness: Harness) -> None:
    changes = harness.create("a", "b")
    assert harness.intake.accept(changes) == changes
    assert harness.tables.system_state.capacity().tasks_by_watch == {"w": 2}
    assert harness.worker.step() == StepReport(done=2)
    assert harness.stored() == {"a", "b"}
    assert (harness.queue.depth(), harness.tables.system_state.capacity().tasks_by_watch) == (0, {})
    assert harness.tables.watch("w").health.consecutive_successes == 2
    assert harness.worker.step() == StepReport()


def test_move_is_two_tasks_with_the_deletion_first(harness: Harness) -> None:
    harness.intake.accept(harness.create("a"))
    harness.worker.step()
    (harness.root / "a").rename(harness.root / "b")
    harness.intake.accept([FileChange(kind=ChangeKind.MOVED, path="b", stamp=STAMP, old_path="a")])
    operations = [row.task.operation for row in harness.queue.list_tasks()]
    assert operations == [FileOperation.DELETE, FileOperation.INGEST]
    harness.worker.step()
    assert harness.stored() == {"b"}


def test_watcher_keeps_changes_beyond_the_capacity(harness: Harness) -> None:
    changes = [FileChange(kind=ChangeKind.CREATED, path=str(n), stamp=STAMP) for n in range(2_500)]
    accepted = harness.intake.accept(changes)
    assert len(accepted) == 2_000 == harness.queue.depth()
    assert harness.intake.accept(changes[2_000:]) == []
    harness.worker.step()
    assert len(harness.tables.system_state.capacity().tasks_by_watch) == 1


@pytest.mark.parametrize("how", ["pause", "disable", "load", "no auto", "backoff"])
def test_watch_that_may_not_process_files_loses_nothing(harness: Harness, how: str) -> None:
    harness.intake.accept(harness.create("early"))
    match how:
        case "pause":
            harness.tables.pause_watch("w")
        case "disable":
            harness.tables.disable_watch("w")
        case "load":
            harness.tables.system_state.check_load(LoadObservation(queue_depth=10_000), [("w", 5)])
        case "no auto":
            harness.tables.update_watch("w", auto_ingest=False)
        case "backoff":
            for number in range(3):
                harness.intake.accept(harness.create(f"{number}.pdf", data=b"%PDF-1.4 broken"))
            while harness.queue.list_tasks(status=TaskStatus.PENDING):
                harness.worker.step()
    assert harness.intake.accept(harness.create("late")) == ()
    if how == "load":  # queued tasks are processed, which reduces the load
        assert harness.worker.step() == StepReport(done=1)
    if how in {"pause", "disable"}:
        assert harness.worker.step() == StepReport(deferred=1)
        (row,) = harness.queue.list_tasks()
        assert (row.status, row.attempts) == (TaskStatus.DELAYED, 0)
        assert harness.tables.watch("w").health.total_errors == 0


def test_without_auto_ingest_changes_wait_for_a_sync(harness: Harness) -> None:
    harness.tables.update_watch("w", auto_ingest=False)
    changes = harness.create("a")
    assert harness.intake.accept(changes) == ()
    harness.tables.request_rescan("w")
    assert harness.intake.accept(changes) == changes
    assert harness.worker.step() == StepReport(done=1)


def test_deletion_is_processed_whatever_the_health(harness: Harness) -> None:
    harness.intake.accept(harness.create("a"))
    harness.worker.step()
    harness.intake.accept([FileChange(kind=ChangeKind.DELETED, path="a", stamp=None)])
    harness.tables.pause_watch("w")
    assert harness.worker.step() == StepReport(done=1)
    assert harness.stored() == set()


def test_sink_outage_pauses_the_queue_and_counts_against_no_watch(harness: Harness) -> None:
    changes = harness.create(*(f"f{number}" for number in range(60)))
    harness.intake.accept(changes)
    harness.store.outage = "no route"
    steps = 0
    while not harness.worker.step().sink_is_down:
        steps += 1
        harness.clock.advance(0.001)
    assert steps == 5
    assert harness.tables.watch("w").health.total_errors == 0
    assert {row.attempts for row in harness.queue.list_tasks()} == {0}
    harness.clock.advance(29)
    assert harness.worker.step().sink_is_down
    harness.clock.advance(1)
    assert harness.worker.step() == StepReport(failed=1), "one probe"
    assert harness.worker.step().sink_is_down
    harness.store.outage = None
    for _ in range(60):
        harness.clock.advance(30)
        harness.worker.step()
    assert len(harness.stored()) == 60
    assert harness.queue.depth() == 0


def test_damaged_file_becomes_a_dead_letter_and_counts_against_its_watch(harness: Harness) -> None:
    harness.intake.accept(harness.create("bad.pdf", data=b"%PDF-1.4 broken"))
    harness.intake.accept(harness.create("good"))
    assert harness.worker.step() == StepReport(done=1, failed=1)
    (row,) = harness.queue.list_tasks()
    assert row.status is TaskStatus.DEAD
    assert harness.tables.watch("w").health.total_errors == 1
    assert harness.tables.system_state.capacity().tasks_by_watch == {}


def test_open_circuit_admits_one_probe_at_a_time(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(20):
        harness.intake.accept(harness.create(f"{number}.pdf", data=b"%PDF-1.4 broken"))
        while harness.queue.depth():
            harness.worker.step()
            harness.clock.advance(400)
    assert harness.tables.watch("w").health.circuit.state == "open"
    assert caplog.text.count("The circuit breaker of watch w opened") == 1
    assert harness.intake.accept(harness.create("x")) == ()
    harness.clock.advance(3_600)
    good = harness.create("x", "y", "z")
    for number in range(3):
        assert harness.intake.accept(good[number:]) == [good[number]], "one probe at a time"
        assert harness.worker.step() == StepReport(done=1)
    health = harness.tables.watch("w").health
    assert (health.circuit.state, health.enabled, health.health_status) == ("closed", True, "degraded")


def test_tasks_of_a_lost_worker_are_processed_by_the_next(harness: Harness) -> None:
    harness.intake.accept(harness.create("a", "b"))
    harness.queue.claim(10, "lost-worker")
    assert harness.worker.step() == StepReport()
    harness.clock.advance(60)
    assert harness.worker.step() == StepReport(done=2)
    assert harness.stored() == {"a", "b"}


def test_task_whose_claim_expires_runs_again(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    harness.intake.accept(harness.create("a"))
    real = harness.store.flush

    def slow() -> None:
        harness.clock.advance(61)
        real()

    monkeypatch.setattr(harness.store, "flush", slow)
    harness.worker.step()
    assert "A claim expired before its task was finished" in caplog.text
    monkeypatch.setattr(harness.store, "flush", real)
    assert harness.queue.depth() == 1
    assert harness.worker.step() == StepReport(done=1)
    assert (harness.queue.depth(), harness.store.files_written) == (0, 1), (
        "the second attempt found it unchanged"
    )


def test_tasks_of_a_removed_watch_are_not_ingested(harness: Harness) -> None:
    harness.intake.accept(harness.create("a"))
    harness.tables.remove_watch("w")
    assert harness.worker.step() == StepReport(deferred=1)
    assert (harness.queue.depth(), harness.store.files_written) == (0, 0)


@pytest.mark.parametrize("method", ["stored_files", "ensure_collection"])
def test_rejected_collection_does_not_block_other_collections(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """The watch may be older than the check of collection names."""
    other = harness.root.parent / "other"
    other.mkdir()
    (other / "b").write_text("words")
    harness.tables.add_watch(WatchFolderConfig(watch_id="v", path=str(other), collection="rejected"))
    real = getattr(harness.store, method)

    def reject_one(collection: str, *more: object) -> object:
        if collection == "rejected":
            raise IngestError("E4523", "invalid name")
        return real(collection, *more)

    monkeypatch.setattr(harness.store, method, reject_one)
    intake = FolderIntake("v", harness.tables, harness.queue, harness.clock)
    for _ in range(10):  # more failures than open the sink's circuit breaker
        intake.accept([FileChange(kind=ChangeKind.CREATED, path="b", stamp=STAMP)])
        harness.intake.accept(harness.create("a"))
        assert harness.worker.step().sink_is_down is False
        harness.clock.advance(400)
    assert harness.stored() == {"a"}
    assert harness.tables.system_state.sink_breaker().consecutive_errors == 0
    assert harness.tables.watch("w").health.total_errors == 0
    assert harness.tables.watch("v").health.total_errors > 0


def test_file_that_another_watch_covers_is_not_deleted(harness: Harness) -> None:
    inner = harness.root / "inner"
    inner.mkdir()
    harness.tables.add_watch(
        WatchFolderConfig(watch_id="v", path=str(inner), collection="docs", patterns=("*.md",))
    )
    harness.intake.accept(harness.create("inner/a.md", "inner/b.md", "inner/c.txt", "inner/d.md", "e.md"))
    harness.worker.step()
    (inner / "b.md").unlink()
    harness.tables.update_watch("w", ignore_patterns=("inner",))
    gone = [
        FileChange(kind=ChangeKind.DELETED, path=path, stamp=None)
        for path in ("inner/a.md", "inner/b.md", "inner/c.txt")
    ]
    gone.append(FileChange(kind=ChangeKind.MOVED, path="f.md", stamp=STAMP, old_path="inner/d.md"))
    harness.create("f.md")  # a copy of the file, which looks like a move
    assert list(harness.intake.accept(gone)) == gone
    harness.worker.step()
    assert harness.stored() == {"a.md", "d.md", "e.md", "f.md"}
    assert list(harness.intake.accept(gone[:1])) == gone[:1], "a change without a task needs no capacity"


def test_availability_from_before_a_restart_is_overwritten(harness: Harness) -> None:
    harness.tables.set_availability("w", "its disk was not there before the restart")
    harness.intake.availability_changed(None, ())
    assert harness.tables.watch("w").unavailable_reason is None


def test_availability_that_could_not_be_stored_is_stored_later(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_watch_id: str, _reason: str | None) -> None:
        raise StoreError("E6001", "the disk is full")

    harness.intake.availability_changed(None, ())
    with monkeypatch.context() as broken:
        broken.setattr(harness.tables, "set_availability", full)
        with pytest.raises(StoreError):
            harness.intake.availability_changed("it is not there", ())
    harness.intake.availability_changed("it is not there", ())
    assert harness.tables.watch("w").unavailable_reason == "it is not there"

"""From folder to queue to vectors, with the clock in the hand: who goes on, who waits, what is lost (nothing)."""

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


class Bench:
    def __init__(self, base: Path) -> None:
        self.root = base / "root"
        self.root.mkdir()
        self.clock, self.store = ManualClock(), MemoryVectorStore()
        self.tables = HandshakeTables(base / "handshake.db", clock=self.clock, rng=Random(1))
        self.tables.add_watch(WatchFolderConfig(watch_id="w", path=str(self.root), collection="docs"))
        self.queue = MemoryFileQueue(self.clock)
        self.feed = FolderIntake("w", self.tables, self.queue, self.clock)
        ingestion = VectorIngestor(HashingEmbedder(16), self.store, self.clock)
        self.drain = IngestWorker(
            self.tables, self.queue, ingestion, self.clock, worker_id="me", batch=10, rng=Random(1)
        )

    def create(self, *names: str, data: bytes = b"words") -> list[FileChange]:
        for name in names:
            (self.root / name).write_bytes(data)
        return [FileChange(kind=ChangeKind.CREATED, path=name, stamp=STAMP) for name in names]

    def stored(self) -> set[str]:
        return {Path(path).name for path in self.store.paths("docs")}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.tables.close()


def test_changes_become_tasks_and_tasks_become_chunks(bench: Bench) -> None:
    changes = bench.create("a", "b")
    assert bench.feed.accept(changes) == changes
    assert bench.tables.system_state.capacity().tasks_by_watch == {"w": 2}
    assert bench.drain.step() == StepReport(done=2)
    assert bench.stored() == {"a", "b"}
    assert (bench.queue.depth(), bench.tables.system_state.capacity().tasks_by_watch) == (0, {})
    assert bench.tables.watch("w").health.consecutive_successes == 2
    assert bench.drain.step() == StepReport()


def test_a_move_is_two_tasks_the_delete_first(bench: Bench) -> None:
    bench.feed.accept(bench.create("a"))
    bench.drain.step()
    (bench.root / "a").rename(bench.root / "b")
    bench.feed.accept([FileChange(kind=ChangeKind.MOVED, path="b", stamp=STAMP, old_path="a")])
    operations = [row.task.operation for row in bench.queue.list_tasks()]
    assert operations == [FileOperation.DELETE, FileOperation.INGEST]
    bench.drain.step()
    assert bench.stored() == {"b"}


def test_more_than_the_share_is_kept_by_the_watcher(bench: Bench) -> None:
    changes = [FileChange(kind=ChangeKind.CREATED, path=str(n), stamp=STAMP) for n in range(2_500)]
    taken = bench.feed.accept(changes)
    assert len(taken) == 2_000 == bench.queue.depth()
    assert bench.feed.accept(changes[2_000:]) == []
    bench.drain.step()
    assert len(bench.tables.system_state.capacity().tasks_by_watch) == 1


@pytest.mark.parametrize("how", ["pause", "disable", "load", "no auto", "backoff"])
def test_who_may_not_go_on_loses_nothing(bench: Bench, how: str) -> None:
    waiting = bench.create("early")
    bench.feed.accept(waiting)
    match how:
        case "pause":
            bench.tables.pause_watch("w")
        case "disable":
            bench.tables.disable_watch("w")
        case "load":
            bench.tables.system_state.check_load(LoadObservation(queue_depth=10_000), [("w", 5)])
        case "no auto":
            bench.tables.update_watch("w", auto_ingest=False)
        case "backoff":
            for number in range(3):
                bench.feed.accept(bench.create(f"{number}.pdf", data=b"%PDF-1.4 broken"))
            while bench.queue.list_tasks(status=TaskStatus.PENDING):
                bench.drain.step()
    assert bench.feed.accept(bench.create("late")) == ()
    if how == "load":  # what was added is done, or the load would never go down
        assert bench.drain.step() == StepReport(done=1)
    if how in {"pause", "disable"}:
        assert bench.drain.step() == StepReport(deferred=1)
        (row,) = bench.queue.list_tasks()
        assert (row.status, row.attempts) == (TaskStatus.DELAYED, 0)
        assert bench.tables.watch("w").health.total_errors == 0


def test_without_auto_ingest_changes_wait_for_a_sync(bench: Bench) -> None:
    bench.tables.update_watch("w", auto_ingest=False)
    changes = bench.create("a")
    assert bench.feed.accept(changes) == ()
    bench.tables.request_rescan("w")
    assert bench.feed.accept(changes) == changes
    assert bench.drain.step() == StepReport(done=1)


def test_a_delete_is_taken_whatever_the_health(bench: Bench) -> None:
    bench.feed.accept(bench.create("a"))
    bench.drain.step()
    bench.feed.accept([FileChange(kind=ChangeKind.DELETED, path="a", stamp=None)])
    bench.tables.pause_watch("w")
    assert bench.drain.step() == StepReport(done=1)
    assert bench.stored() == set()


def test_a_sink_that_is_down_pauses_the_queue_and_punishes_nobody(bench: Bench) -> None:
    changes = bench.create(*(f"f{number}" for number in range(60)))
    bench.feed.accept(changes)
    bench.store.outage = "no route"
    steps = 0
    while not bench.drain.step().sink_is_down:
        steps += 1
        bench.clock.advance(0.001)
    assert steps == 5
    assert bench.tables.watch("w").health.total_errors == 0
    assert {row.attempts for row in bench.queue.list_tasks()} == {0}
    bench.clock.advance(29)
    assert bench.drain.step().sink_is_down
    bench.clock.advance(1)
    assert bench.drain.step() == StepReport(failed=1), "one probe"
    assert bench.drain.step().sink_is_down
    bench.store.outage = None
    for _ in range(60):
        bench.clock.advance(30)
        bench.drain.step()
    assert len(bench.stored()) == 60
    assert bench.queue.depth() == 0


def test_a_broken_file_is_a_dead_letter_and_its_watch_is_charged(bench: Bench) -> None:
    bench.feed.accept(bench.create("bad.pdf", data=b"%PDF-1.4 broken"))
    bench.feed.accept(bench.create("good"))
    assert bench.drain.step() == StepReport(done=1, failed=1)
    (row,) = bench.queue.list_tasks()
    assert row.status is TaskStatus.DEAD
    assert bench.tables.watch("w").health.total_errors == 1
    assert bench.tables.system_state.capacity().tasks_by_watch == {}


def test_an_open_circuit_is_tried_one_file_at_a_time(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(20):
        bench.feed.accept(bench.create(f"{number}.pdf", data=b"%PDF-1.4 broken"))
        while bench.queue.depth():
            bench.drain.step()
            bench.clock.advance(400)
    assert bench.tables.watch("w").health.circuit.state == "open"
    assert caplog.text.count("The circuit breaker of a watch opened") == 1
    assert bench.feed.accept(bench.create("x")) == ()
    bench.clock.advance(3_600)
    good = bench.create("x", "y", "z")
    for number in range(3):
        assert bench.feed.accept(good[number:]) == [good[number]], "one trial at a time"
        assert bench.drain.step() == StepReport(done=1)
    health = bench.tables.watch("w").health
    assert (health.circuit.state, health.enabled, health.health_status) == ("closed", True, "degraded")


def test_a_worker_that_dies_leaves_its_tasks_to_the_next(bench: Bench) -> None:
    bench.feed.accept(bench.create("a", "b"))
    bench.queue.claim(10, "the dead one")
    assert bench.drain.step() == StepReport()
    bench.clock.advance(60)
    assert bench.drain.step() == StepReport(done=2)
    assert bench.stored() == {"a", "b"}


def test_a_claim_that_ends_while_it_works_is_done_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench.feed.accept(bench.create("a"))
    real = bench.store.flush

    def slow() -> None:
        bench.clock.advance(61)
        real()

    monkeypatch.setattr(bench.store, "flush", slow)
    bench.drain.step()
    assert "A claim expired before its task was finished" in caplog.text
    monkeypatch.setattr(bench.store, "flush", real)
    assert bench.queue.depth() == 1
    assert bench.drain.step() == StepReport(done=1)
    assert (bench.queue.depth(), bench.store.files_written) == (0, 1), "the second time it was unchanged"


def test_what_is_left_of_a_watch_that_is_removed_is_not_done(bench: Bench) -> None:
    bench.feed.accept(bench.create("a"))
    bench.tables.remove_watch("w")
    assert bench.drain.step() == StepReport(deferred=1)
    assert (bench.queue.depth(), bench.store.files_written) == (0, 0)


@pytest.mark.parametrize("refusing", ["stored_files", "ensure_collection"])
def test_a_collection_that_the_store_refuses_holds_nobody_else_up(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, refusing: str
) -> None:
    """Such a watch can be there from before such names were refused."""
    other = bench.root.parent / "other"
    other.mkdir()
    (other / "b").write_text("words")
    bench.tables.add_watch(WatchFolderConfig(watch_id="v", path=str(other), collection="refused"))
    real = getattr(bench.store, refusing)

    def picky(collection: str, *more: object) -> object:
        if collection == "refused":
            raise IngestError("E4523", "no such name here")
        return real(collection, *more)

    monkeypatch.setattr(bench.store, refusing, picky)
    feed = FolderIntake("v", bench.tables, bench.queue, bench.clock)
    for _ in range(10):  # more than open the sink's circuit
        feed.accept([FileChange(kind=ChangeKind.CREATED, path="b", stamp=STAMP)])
        bench.feed.accept(bench.create("a"))
        assert bench.drain.step().sink_is_down is False
        bench.clock.advance(400)
    assert bench.stored() == {"a"}
    assert bench.tables.system_state.sink_breaker().consecutive_errors == 0
    assert bench.tables.watch("w").health.total_errors == 0
    assert bench.tables.watch("v").health.total_errors > 0


def test_what_another_watch_of_the_collection_takes_is_not_deleted(bench: Bench) -> None:
    inner = bench.root / "inner"
    inner.mkdir()
    bench.tables.add_watch(
        WatchFolderConfig(watch_id="v", path=str(inner), collection="docs", patterns=("*.md",))
    )
    bench.feed.accept(bench.create("inner/a.md", "inner/b.md", "inner/c.txt", "inner/d.md", "e.md"))
    bench.drain.step()
    (inner / "b.md").unlink()
    bench.tables.update_watch("w", ignore_patterns=("inner",))
    gone = [
        FileChange(kind=ChangeKind.DELETED, path=path, stamp=None)
        for path in ("inner/a.md", "inner/b.md", "inner/c.txt")
    ]
    gone.append(FileChange(kind=ChangeKind.MOVED, path="f.md", stamp=STAMP, old_path="inner/d.md"))
    bench.create("f.md")  # a copy of it, which looks like a move
    assert list(bench.feed.accept(gone)) == gone
    bench.drain.step()
    assert bench.stored() == {"a.md", "d.md", "e.md", "f.md"}
    assert list(bench.feed.accept(gone[:1])) == gone[:1], "nothing to do for it, which needs no room"


def test_a_folder_that_came_back_while_nobody_watched_is_not_said_to_be_down(bench: Bench) -> None:
    bench.tables.set_availability("w", "its disk was not there before the restart")
    bench.feed.availability_changed(None, ())
    assert bench.tables.watch("w").unavailable_reason is None


def test_what_could_not_be_noted_of_a_folder_is_noted_later(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_watch_id: str, _reason: str | None) -> None:
        raise StoreError("E6001", "the disk is full")

    bench.feed.availability_changed(None, ())
    with monkeypatch.context() as broken:
        broken.setattr(bench.tables, "set_availability", full)
        with pytest.raises(StoreError):
            bench.feed.availability_changed("it is not there", ())
    bench.feed.availability_changed("it is not there", ())
    assert bench.tables.watch("w").unavailable_reason == "it is not there"

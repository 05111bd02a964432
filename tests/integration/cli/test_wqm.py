"""`wqm`: every command, in an empty folder and in this process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner, Result

import vedette
from tests.integration.cli.conftest import Wqm
from vedette.cli.vedette import app as vedette_app
from vedette.cli.wqm import admin as admin_commands
from vedette.cli.wqm import queue as queue_commands
from vedette.clock import SystemClock
from vedette.errors import FolderError
from vedette.handshake.degradation import LoadObservation
from vedette.handshake.failures import Failure, FailureKind
from vedette.handshake.tables import HandshakeTables
from vedette.handshake.tables.handshake_db import FILE_NAME
from vedette.search.embedding import HashingEmbedder
from vedette.search.file_queue.client import FileQueueClient
from vedette.search.file_queue.engine_queue import QUEUE_DATABASE, EngineFileQueue, queue_directory
from vedette.search.file_queue.tasks import FileOperation, FileTask
from vedette.search.folders.daemon import FolderDaemon
from vedette.search.folders.daemon_api import DaemonApi, DaemonServer, connect_daemon, daemon_socket
from vedette.testing import ManualClock
from vedette.testing.file_queue import MemoryFileQueue
from vedette.testing.vectors import MemoryVectorStore


@pytest.fixture(autouse=True)
def quick_embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VEDETTE_EMBEDDER", "hashing")


def write(path: Path, data: bytes) -> None:
    """A file that was written some time ago: one of just now would be looked at twice."""
    path.write_bytes(data)
    os.utime(path, (1_700_000_000, 1_700_000_000))


@pytest.fixture
def docs(folder: Path, wqm: Wqm) -> Path:
    """A folder with two files, watched as `docs`."""
    root = folder / "docs"
    root.mkdir()
    write(root / "apples.md", b"# Fruit\nred apples fall from trees\n\n# Tools\nhammers hit nails\n")
    write(root / "moon.txt", b"the moon is far away\n")
    wqm("watch", "add", str(root), "--collection", "notes", "--id", "docs")
    return root


@pytest.fixture
def tables(docs: Path, folder: Path) -> Iterator[HandshakeTables]:
    with HandshakeTables(folder / "data" / "handshake.db") as opened:
        yield opened


def records(result: Result) -> Any:
    return json.loads(result.stdout)


def fail(tables: HandshakeTables, path: str, times: int) -> None:
    for _ in range(times):
        failure = Failure(
            path=path, error_type="E4512", message="damaged", at=SystemClock().now(), kind=FailureKind.DATA
        )
        tables.record_error("docs", failure)


def test_sync_and_search(docs: Path, wqm: Wqm) -> None:
    assert "docs: 2 created" in wqm("watch", "sync", "--dry-run").stdout
    assert wqm("watch", "sync").stdout == "docs: 2 ingested\n"
    assert wqm("watch", "sync", "docs").stdout == "docs: nothing changed\n"
    (hit, *_) = records(wqm("search", "red apples", "--collection", "notes", "--format", "json"))
    assert (hit["path"], hit["start"], hit["unit"]) == (str(docs / "apples.md"), 1, "line")
    assert "red apples" in hit["text"]
    assert f"{docs}/moon.txt:1" in wqm("search", "moon", "-c", "notes", "-n", "1").stdout
    (docs / "moon.txt").unlink()
    assert wqm("watch", "sync").stdout == "docs: 1 removed\n"
    assert "moon" not in wqm("search", "moon", "-c", "notes").stdout
    assert "The collection other is empty" in wqm("search", "moon", "-c", "other").stderr


def test_failed_file_is_reported_with_exit_code_1(docs: Path, wqm: Wqm) -> None:
    write(docs / "bad.pdf", b"%PDF-1.4 broken")
    result = wqm("watch", "sync", fails=True)
    assert result.stdout == "docs: 2 ingested, 1 failed\n"
    assert "bad.pdf: no text can be read" in result.stderr
    assert wqm("watch", "sync").stdout == "docs: nothing changed\n"


def test_missing_folder_is_reported(docs: Path, wqm: Wqm) -> None:
    wqm("watch", "sync")
    docs.rename(docs.with_name("away"))
    assert "E4503" in wqm("watch", "sync", fails=True).stderr
    assert "unavailable" in wqm("watch", "list").stdout
    docs.with_name("away").rename(docs)
    assert wqm("watch", "sync").stdout == "docs: nothing changed\n"


def test_health(tables: HandshakeTables, wqm: Wqm) -> None:
    fail(tables, "/x", 3)
    (record,) = records(wqm("watch", "health", "--format", "json"))
    assert list(record) == [
        "watch_id",
        "path",
        "collection",
        "enabled",
        "health_status",
        "consecutive_errors",
        "total_errors",
        "last_error_at",
        "last_error_message",
        "backoff_until",
        "last_success_at",
    ]
    assert (record["health_status"], record["consecutive_errors"]) == ("backoff", 3)
    assert record["last_error_at"].endswith("Z")
    table = wqm("watch", "health")
    assert "BACKOFF" in table.stdout
    assert "Watch Health Summary (1 total): Healthy 0, Degraded 0, Backoff 1, Disabled 0" in table.stderr
    for status, count in [("backoff", 1), ("failing", 1), ("degraded", 0), ("healthy", 0)]:
        assert len(records(wqm("watch", "health", "--status", status, "--format", "json"))) == count
    assert records(wqm("watch", "health", "--collection", "other", "-f", "json")) == []
    assert (
        "The statuses are healthy, degraded" in wqm("watch", "health", "--status", "ill", fails=True).stderr
    )


def test_errors_and_patterns(tables: HandshakeTables, wqm: Wqm) -> None:
    fail(tables, "/x.pdf", 5)
    plain = wqm("watch", "errors", "docs")
    assert "damaged" in plain.stdout
    assert "file_repeated" in plain.stdout
    assert "confidence_score" not in plain.stdout
    assert "The watch waits for" in plain.stderr
    assert "confidence_score" in wqm("watch", "errors", "docs", "--show-patterns").stdout
    (record,) = records(wqm("watch", "errors", "docs", "-f", "json"))
    assert [each["pattern_type"] for each in record["patterns"] if each["is_systematic"]] == ["file_repeated"]
    assert "E4501" in wqm("watch", "errors", "nobody", fails=True).stderr


def test_reset_errors(tables: HandshakeTables, wqm: Wqm) -> None:
    fail(tables, "/x.pdf", 20)
    declined = wqm("watch", "reset-errors", "docs", input="n\n", fails=True)
    assert "disabled, circuit open, 20 consecutive errors, 20 in total" in declined.stdout
    assert tables.watch("docs").health.health_status == "disabled"
    agreed = wqm("watch", "reset-errors", "docs", input="y\n")
    assert "wqm watch enable docs" in agreed.stdout
    assert tables.watch("docs").health.health_status == "healthy"
    assert tables.patterns("docs")
    wqm("watch", "reset-errors", "docs", "--force", "--clear-patterns")
    assert tables.patterns("docs") == []
    assert not tables.watch("docs").health.enabled
    wqm("watch", "enable", "docs")
    assert tables.watch("docs").health.enabled


def test_enable_disable_pause_resume(tables: HandshakeTables, wqm: Wqm) -> None:
    def state() -> str:
        return str(records(wqm("watch", "list", "-f", "json"))[0]["state"])

    assert state() == "active"
    wqm("watch", "disable", "docs")
    assert state() == "disabled by user"
    assert records(wqm("watch", "list", "--active", "-f", "json")) == []
    wqm("watch", "enable", "docs")
    wqm("watch", "pause", "docs")
    assert state() == "paused"
    wqm("watch", "resume", "docs")
    assert state() == "active"


def test_pause_keeps_other_fields(tables: HandshakeTables, wqm: Wqm) -> None:
    fail(tables, "/x.pdf", 4)
    wqm("watch", "update", "docs", "--priority", "8")
    before = tables.watch("docs")
    wqm("watch", "pause", "docs")
    wqm("watch", "resume", "docs")
    after = tables.watch("docs")
    assert (after.config, after.health) == (before.config, before.health)


def test_list_by_priority_and_degradation(tables: HandshakeTables, folder: Path, wqm: Wqm) -> None:
    for name, priority in (("low", "2"), ("high", "9")):
        (folder / name).mkdir()
        wqm("watch", "add", name, "-c", "notes", "--id", name, "--priority", priority)
    listed = wqm("watch", "list", "--by-priority", "--show-priority").stdout.splitlines()[3:-1]
    assert [line.split()[1] for line in listed] == ["high", "docs", "low"]
    tables.system_state.check_load(LoadObservation(queue_depth=3_000), [("low", 2), ("docs", 5), ("high", 9)])
    shown = wqm("watch", "list", "--show-degradation")
    assert "load is moderate: intervals × 2.0, 1 paused" in shown.stderr
    states = {each["watch_id"]: each["state"] for each in records(wqm("watch", "list", "-f", "json"))}
    assert states == {"docs": "active", "high": "active", "low": "paused by load"}
    status = records(wqm("admin", "degradation-status", "--format", "json"))
    assert (status["level"], status["paused_watch_ids"], status["sink"]) == ("moderate", ["low"], "closed")
    assert "moderate" in wqm("admin", "degradation-status").stdout


def test_degradation_without_a_check_has_no_time(wqm: Wqm, docs: Path) -> None:
    status = records(wqm("admin", "degradation-status", "--format", "json"))
    assert (status["level"], status["entered_at"], status["last_check_at"]) == ("normal", None, None)


def test_add_and_update(folder: Path, wqm: Wqm) -> None:
    (folder / "src").mkdir()
    wqm(
        *("watch", "add", "src", "-c", "code", "-p", "*.py", "-p", "*.md", "-i", ".git", "--no-recursive"),
        *("--depth", "3", "--debounce", "0.5", "--priority", "7", "--library", "Tools", "--no-auto"),
    )
    (row,) = records(wqm("watch", "list", "-f", "json"))
    assert row["watch_id"].startswith("watch_")
    assert len(row["watch_id"]) == len("watch_") + 8
    assert (row["path"], row["patterns"], row["ignore_patterns"]) == (
        str(folder / "src"),
        ["*.py", "*.md"],
        [".git"],
    )
    assert (row["recursive"], row["recursive_depth"], row["debounce_seconds"]) == (False, 3, 0.5)
    assert (row["watch_priority"], row["watch_type"], row["library_name"]) == (7, "library", "Tools")
    assert row["auto_ingest"] is False
    wqm("watch", "update", str(folder / "src"), "--priority", "1", "--recursive")
    (row,) = records(wqm("watch", "status", row["watch_id"], "-f", "json"))
    assert (row["watch_priority"], row["recursive"], row["patterns"]) == (1, True, ["*.py", "*.md"])
    assert "watch_priority" in wqm("watch", "status", row["watch_id"]).stdout
    assert "E4502" in wqm("watch", "update", row["watch_id"], "--priority", "11", fails=True).stderr
    assert "name at least one option" in wqm("watch", "update", row["watch_id"], fails=True).stderr
    assert "is not a" in wqm("watch", "add", "nowhere", "-c", "x", fails=True).stderr
    assert "E4502" in wqm("watch", "add", "src", "-c", "code", fails=True).stderr


def test_remove_deletes_the_text(docs: Path, wqm: Wqm) -> None:
    wqm("watch", "sync")
    wqm("watch", "remove", "docs", input="n\n", fails=True)
    assert "with the text of 2 files" in wqm("watch", "remove", "docs", "--force").stdout
    assert "No watches" in wqm("watch", "list").stderr
    assert records(wqm("search", "apples", "-c", "notes", "-f", "json")) == []
    assert (docs / "apples.md").exists()
    wqm("watch", "add", str(docs), "-c", "notes", "--id", "docs")
    assert wqm("watch", "sync").stdout == "docs: 2 ingested\n", "what was seen was forgotten with the watch"
    wqm("watch", "remove", "docs", "--force", "--keep-chunks")
    assert records(wqm("search", "apples", "-c", "notes", "-f", "json"))


def test_exclusions(tables: HandshakeTables, docs: Path, wqm: Wqm) -> None:
    bad = str(docs / "bad.pdf")
    fail(tables, bad, 5)
    (record,) = records(wqm("watch", "exclusions", "docs", "-f", "json"))
    assert (record["value"], record["is_permanent"], record["error_count"]) == (bad, True, 5)
    wqm(
        "watch",
        "exclusions",
        "docs",
        "--add",
        "*.tmp",
        "--type",
        "pattern",
        "--hours",
        "2",
        "--reason",
        "noise",
    )
    assert "noise" in wqm("watch", "exclusions", "docs").stdout
    wqm("watch", "exclusions", "docs", "--remove", bad)
    wqm("watch", "exclusions", "docs", "--remove", "*.tmp")
    assert "Nothing is excluded" in wqm("watch", "exclusions", "docs").stderr
    assert "has no exclusion" in wqm("watch", "exclusions", "docs", "--remove", "x", fails=True).stderr
    assert (
        "The types are file"
        in wqm("watch", "exclusions", "docs", "--add", "x", "--type", "y", fails=True).stderr
    )


def test_system_stats(docs: Path, wqm: Wqm) -> None:
    wqm("watch", "sync")
    stats = records(wqm("admin", "system-stats", "--format", "json"))
    assert (stats["watches"], stats["watches_healthy"], stats["chunks in notes"]) == (1, 1, 2)
    assert (stats["daemon_runs"], stats["memory_used_share"]) == (False, None), "it is the daemon's"


def test_watch_by_relative_path(docs: Path, wqm: Wqm) -> None:
    for named in ("docs", str(docs), "docs/", "./docs", "docs/../docs"):
        (row,) = records(wqm("watch", "status", named, "-f", "json"))
        assert row["watch_id"] == "docs"
    assert "E4501" in wqm("watch", "status", "elsewhere", fails=True).stderr
    wqm("watch", "add", str(docs), "--collection", "other", "--id", "twice")
    assert "name one of docs, twice" in wqm("watch", "status", "./docs", fails=True).stderr


def test_sources_are_listed(wqm: Wqm, folder: Path) -> None:
    """They have health, backoff, a circuit and priority; only removing is `vedette source`'s."""

    def source(*words: str) -> None:
        result = CliRunner().invoke(vedette_app, ["source", *words])
        assert result.exit_code == 0, result.output

    source("add", "mongodb", "mongodb://ada:secret@db/shop", "--name", "shop")
    source("add", "postgres", "postgresql://db/books", "--name", "books")
    listed = records(wqm("watch", "list", "--show-priority", "-f", "json"))
    assert [each["watch_id"] for each in listed] == ["source:books", "source:shop"]
    assert listed[1]["path"] == "mongodb://ada:***@db/shop"
    assert (listed[1]["health_status"], listed[1]["circuit_state"]) == ("healthy", "closed")
    wqm("watch", "update", "source:shop", "--priority", "9")
    wqm("watch", "pause", "source:shop")
    (row,) = records(wqm("watch", "status", "source:shop", "-f", "json"))
    assert (row["effective_priority"], row["state"]) == (9, "paused")
    assert "vedette source remove shop" in wqm("watch", "remove", "source:shop", "--force", fails=True).stderr
    source("remove", "shop")
    assert len(records(wqm("watch", "list", "-f", "json"))) == 1


# The queue


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch, folder: Path) -> MemoryFileQueue:
    (folder / "data").mkdir()
    made = MemoryFileQueue(ManualClock(SystemClock().now()))
    for module in (queue_commands, admin_commands):
        monkeypatch.setattr(module, "open_queue", lambda directory: made)
    for path, collection in [("/a", "one"), ("/b", "one"), ("/c", "two")]:
        task = FileTask(
            path=path, watch_id="w", collection=collection, operation=FileOperation.INGEST, priority=5
        )
        made.put([task])
    made.nack(made.claim(1, "me")[0].claim_id, error="damaged", retry=False)
    return made


def test_queue(queue: MemoryFileQueue, wqm: Wqm) -> None:
    listed = records(wqm("queue", "list", "-f", "json"))
    assert [(each["path"], each["status"]) for each in listed] == [
        ("/b", "pending"),
        ("/c", "pending"),
        ("/a", "dead"),
    ]
    assert [each["path"] for each in records(wqm("queue", "list", "-s", "dead", "-f", "json"))] == ["/a"]
    assert "damaged" in wqm("queue", "dlq", "list").stdout
    assert "damaged" in wqm("queue", "show", "/a").stdout
    assert wqm("queue", "retry", "/a").stdout == "1 returned to the queue\n"
    assert wqm("queue", "retry", "--all").stdout == "0 returned to the queue\n"
    for wrong in (
        ["queue", "retry"],
        ["queue", "retry", "/a", "--all"],
        ["queue", "show", "/x"],
        ["queue", "list", "-s", "x"],
    ):
        wqm(*wrong, fails=True)


def test_queue_stats(queue: MemoryFileQueue, wqm: Wqm) -> None:
    (record,) = records(wqm("admin", "queue-stats", "-f", "json"))
    assert record == {"collection": "all", "pending": 2, "delayed": 0, "in_progress": 0, "dead": 1}
    by = records(wqm("admin", "queue-stats", "--by-collection", "-f", "json"))
    assert [(each["collection"], each["pending"], each["dead"]) for each in by] == [
        ("one", 1, 1),
        ("two", 1, 0),
    ]


def test_old_dead_letters_are_purged(queue: MemoryFileQueue, wqm: Wqm) -> None:
    wqm("queue", "dlq", "purge", input="n\n", fails=True)
    assert wqm("queue", "dlq", "purge", "--force").stdout == "0 deleted\n"
    assert queue.purge_dead_letters(SystemClock().now() + timedelta(days=1)) == 1


def test_empty_queue(wqm: Wqm, folder: Path) -> None:
    (folder / "data").mkdir()
    for command in (["queue", "list"], ["queue", "dlq", "list"]):
        assert "No" in wqm(*command).stderr
    assert wqm("queue", "retry", "--all").stdout == "0 returned to the queue\n"
    assert "E4505" in wqm("queue", "retry", "/nothing", fails=True).stderr


def test_queue_of_a_running_daemon(wqm: Wqm, folder: Path) -> None:
    """The daemon has the queue open and performs the changes that commands request."""
    task = FileTask(path="/a", watch_id="w", collection="c", operation=FileOperation.INGEST, priority=5)
    directory = folder / "data"
    with (
        vedette.open(queue_directory(directory)) as queue_vedette,
        EngineFileQueue(queue_vedette.database(QUEUE_DATABASE), directory / FILE_NAME) as queue,
    ):
        queue.put([task])
        queue.nack(queue.claim(1, "me")[0].claim_id, error="damaged", retry=False)
        queue.flush_view()
        assert [each["status"] for each in records(wqm("queue", "list", "-f", "json"))] == ["dead"]
        store, daemon = MemoryVectorStore(), Mock(spec=FolderDaemon)
        with DaemonServer(daemon_socket(directory), DaemonApi(daemon, queue, store, HashingEmbedder(16))):
            assert wqm("queue", "retry", "/a").stdout == "1 returned to the queue\n"
            assert [each["status"] for each in records(wqm("queue", "list", "-f", "json"))] == ["pending"]
            assert "E4505" in wqm("queue", "retry", "/a", fails=True).stderr
            assert wqm("queue", "dlq", "purge", "--force").stdout == "0 deleted\n"
        assert queue.claim(1, "me")[0].failed_attempts == 0


def test_queue_owner_that_does_not_answer(folder: Path) -> None:
    with (
        vedette.open(queue_directory(folder / "data")),
        FileQueueClient(folder / "data", SystemClock(), timeout_seconds=0.1) as queue,
        pytest.raises(FolderError, match="E4504"),
    ):
        queue.retry_dead_letters()


def wait_until_taken_up(directory: Path, chunks: int) -> None:
    link, never = connect_daemon(directory), Event()
    while link.collections().get("notes", 0) < chunks:
        never.wait(0.05)
    with FileQueueClient(directory, SystemClock()) as queue:
        while queue.list_tasks():
            never.wait(0.05)


def beside_the_daemon(docs: Path, folder: Path, wqm: Wqm) -> None:
    """Every command that needs the vectors asks the daemon, which holds them."""
    (hit, *_) = records(wqm("search", "how deep is the sea", "-c", "notes", "-f", "json"))
    assert hit["place"].startswith(str(docs / "sea.txt"))
    stats = json.loads(wqm("admin", "system-stats", "-f", "json").stdout)
    assert (stats["chunks in notes"], stats["daemon_runs"]) == (3, True)
    assert 0 < stats["memory_used_share"] <= 1
    assert "nothing changed" in wqm("watch", "sync", "--dry-run").stdout
    write(docs / "late.txt", b"it was late\n")
    assert wqm("watch", "sync", "docs").stdout == "docs: ingested by the daemon\n"
    (hit, *_) = records(wqm("search", "late", "-c", "notes", "-f", "json"))
    assert hit["text"] == "it was late"
    (docs / "late.txt").unlink()
    wqm("watch", "update", "docs", "--no-auto")
    write(docs / "asked.txt", b"only when asked for\n")
    assert wqm("watch", "sync", "docs").stdout == "docs: ingested by the daemon\n"
    (hit, *_) = records(wqm("search", "only when asked for", "-c", "notes", "-f", "json"))
    assert hit["text"] == "only when asked for"
    wqm("watch", "pause", "docs")
    assert "wqm watch resume docs" in wqm("watch", "sync", "docs", fails=True).stderr
    wqm("watch", "resume", "docs")
    other = folder / "other"
    other.mkdir()
    write(other / "cup.txt", b"a cup of tea\n")
    wqm("watch", "add", str(other), "--collection", "notes", "--id", "other")
    wqm("watch", "sync", "other")
    assert "with the text of 1 files" in wqm("watch", "remove", "other", "--force").stdout
    assert "cup.txt" not in wqm("search", "a cup of tea", "-c", "notes", "-f", "json").stdout
    assert [each["watch_id"] for each in records(wqm("watch", "list", "-f", "json"))] == ["docs"]


def test_daemon(docs: Path, folder: Path, wqm: Wqm) -> None:
    """In the foreground: what is there and what comes is searchable; a signal ends it in good order."""
    command = [sys.executable, "-c", "from vedette.cli.wqm import main; main()", "daemon"]
    wqm("watch", "update", "docs", "--debounce", "0.05")
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert "Watching the folders" in process.stdout.readline()
            write(docs / "sea.txt", b"the sea is deep\n")
            wait_until_taken_up(folder / "data", chunks=3)
            beside_the_daemon(docs, folder, wqm)
            process.send_signal(signal.SIGTERM)
            assert "Stopped" in process.stdout.read()
        finally:
            process.kill()
    assert process.returncode == 0
    (hit, *_) = records(wqm("search", "how deep is the sea", "-c", "notes", "-f", "json"))
    assert hit["place"].startswith(str(docs / "sea.txt"))


def test_location_without_a_directory_is_refused(wqm: Wqm) -> None:
    assert "is not a" in wqm("watch", "list", "--data", ":memory:", fails=True).stderr


def test_vectors_locked_by_another_process(docs: Path, folder: Path, wqm: Wqm) -> None:
    from vedette.search.vectors.qdrant import QdrantStore

    store = QdrantStore(folder / "data" / "vectors")
    assert "another process has the folder open" in wqm("search", "x", "-c", "notes", fails=True).stderr
    assert "another process has the folder open" in wqm("admin", "system-stats").stdout
    store.close()

"""One pass over a folder: afterwards the vector store equals a clean rebuild."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from vedette.errors import FolderError
from vedette.handshake.config import WatchFolderConfig
from vedette.handshake.exclusions import Exclusion, ExclusionType
from vedette.handshake.tables import HandshakeTables
from vedette.search.embedding import HashingEmbedder
from vedette.search.folders.sync import FolderSync, SyncReport
from vedette.search.ingestion import VectorIngestor
from vedette.sources.files.file_state import FileStateStore
from vedette.testing import ManualClock
from vedette.testing.vectors import MemoryVectorStore


class Harness:
    def __init__(self, base: Path) -> None:
        self.root = base / "root"
        self.root.mkdir()
        self.clock = ManualClock()
        self.tables = HandshakeTables(base / "handshake.db", clock=self.clock)
        self.file_states = FileStateStore(base / "folders.db")
        self.store = MemoryVectorStore()
        self.tables.add_watch(WatchFolderConfig(watch_id="w", path=str(self.root), collection="docs"))

    def write(self, name: str, text: str | bytes = "words") -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        os.utime(path, (1_700_000_000, 1_700_000_000))

    def run(self) -> SyncReport:
        ingestor = VectorIngestor(HashingEmbedder(16), self.store, self.clock)
        return FolderSync("w", self.tables, self.file_states, self.clock, ingestor).run()

    def stored(self) -> set[str]:
        return {str(Path(path).relative_to(self.root)) for path in self.store.paths("docs")}


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    created = Harness(tmp_path)
    yield created
    created.tables.close()
    created.file_states.close()


def test_each_pass_ingests_the_changes(harness: Harness) -> None:
    for name in ("a", "b", "c/d"):
        harness.write(name, f"words of {name}")
    assert harness.run() == SyncReport(changes=3, ingested=3)
    assert harness.run() == SyncReport()
    harness.write("a", "other words")
    (harness.root / "b").unlink()
    (harness.root / "c").rename(harness.root / "e")
    assert harness.run() == SyncReport(changes=3, ingested=2, removed=2)
    assert harness.stored() == {"a", "e/d"}
    row = harness.tables.watch("w")
    assert (row.last_scan, row.health.consecutive_successes) == (harness.clock.now(), 5)


def test_damaged_file_counts_once_and_is_ignored_until_it_changes(harness: Harness) -> None:
    harness.write("bad.pdf", b"%PDF-1.4 broken")
    harness.write("good")
    report = harness.run()
    assert (report.ingested, [failure.error_type for failure in report.failures]) == (1, ["E4512"])
    assert harness.tables.watch("w").health.total_errors == 1
    assert harness.run() == SyncReport()
    for number in range(4):
        harness.write("bad.pdf", b"%PDF-1.4 broken again" + bytes([65 + number]))
        harness.run()
    assert [each.value for each in harness.tables.exclusions("w")] == [str(harness.root / "bad.pdf")]
    harness.write("bad.pdf", b"%PDF-1.4 and again")
    assert harness.run() == SyncReport(changes=1, removed=1, excluded=1)


def test_chunks_of_an_excluded_file_are_removed(harness: Harness) -> None:
    harness.write("a.log")
    harness.run()
    assert harness.stored() == {"a.log"}
    harness.tables.add_exclusion(
        "w",
        Exclusion(
            type=ExclusionType.PATTERN,
            value="*.log",
            reason="noise",
            error_count=0,
            created_at=harness.clock.now(),
            expires_at=harness.clock.now() + timedelta(days=1),
        ),
    )
    harness.write("a.log", "more")
    harness.run()
    assert harness.stored() == set()


def test_sink_outage_stops_the_pass_and_loses_nothing(harness: Harness) -> None:
    for number in range(200):
        harness.write(f"{number}")
    harness.store.outage = "no route"
    report = harness.run()
    assert (report.stop_reason, report.ingested, len(report.failures)) == ("no route", 0, 64)
    assert harness.tables.watch("w").health.total_errors == 0
    assert harness.tables.system_state.sink_breaker().consecutive_errors == 1
    harness.store.outage = None
    assert harness.run() == SyncReport(changes=200, ingested=200)
    assert harness.tables.system_state.sink_breaker().consecutive_errors == 0


def test_missing_folder_is_an_error_and_deletes_nothing(harness: Harness) -> None:
    harness.write("a")
    harness.run()
    harness.root.rename(harness.root.with_name("away"))
    with pytest.raises(FolderError, match="E4503"):
        harness.run()
    assert harness.tables.watch("w").unavailable_reason == f"{harness.root} is not there"
    assert len(harness.store.paths("docs")) == 1
    harness.root.with_name("away").rename(harness.root)
    assert harness.run() == SyncReport()
    assert harness.tables.watch("w").unavailable_reason is None

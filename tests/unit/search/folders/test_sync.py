"""A pass over a folder: after it the vector store is what a clean rebuild would be."""

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


class Bench:
    def __init__(self, base: Path) -> None:
        self.root = base / "root"
        self.root.mkdir()
        self.clock = ManualClock()
        self.tables = HandshakeTables(base / "handshake.db", clock=self.clock)
        self.seen = FileStateStore(base / "folders.db")
        self.store = MemoryVectorStore()
        self.tables.add_watch(WatchFolderConfig(watch_id="w", path=str(self.root), collection="docs"))

    def write(self, name: str, text: str | bytes = "words") -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        os.utime(path, (1_700_000_000, 1_700_000_000))

    def run(self) -> SyncReport:
        ingestion = VectorIngestor(HashingEmbedder(16), self.store, self.clock)
        return FolderSync("w", self.tables, self.seen, self.clock, ingestion).run()

    def stored(self) -> set[str]:
        return {str(Path(path).relative_to(self.root)) for path in self.store.paths("docs")}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.tables.close()
    made.seen.close()


def test_passes_follow_the_folder(bench: Bench) -> None:
    for name in ("a", "b", "c/d"):
        bench.write(name, f"words of {name}")
    assert bench.run() == SyncReport(changes=3, ingested=3)
    assert bench.run() == SyncReport()
    bench.write("a", "other words")
    (bench.root / "b").unlink()
    (bench.root / "c").rename(bench.root / "e")
    assert bench.run() == SyncReport(changes=3, ingested=2, removed=2)
    assert bench.stored() == {"a", "e/d"}
    row = bench.tables.watch("w")
    assert (row.last_scan, row.health.consecutive_successes) == (bench.clock.now(), 5)


def test_a_bad_file_is_charged_once_and_not_read_again_until_it_changes(bench: Bench) -> None:
    bench.write("bad.pdf", b"%PDF-1.4 broken")
    bench.write("good")
    report = bench.run()
    assert (report.ingested, [failure.error_type for failure in report.failures]) == (1, ["E4512"])
    assert bench.tables.watch("w").health.total_errors == 1
    assert bench.run() == SyncReport()
    for number in range(4):
        bench.write("bad.pdf", b"%PDF-1.4 broken again" + bytes([65 + number]))
        bench.run()
    assert [each.value for each in bench.tables.exclusions("w")] == [str(bench.root / "bad.pdf")]
    bench.write("bad.pdf", b"%PDF-1.4 and again")
    assert bench.run() == SyncReport(changes=1, removed=1, excluded=1)


def test_what_is_excluded_loses_its_chunks(bench: Bench) -> None:
    bench.write("a.log")
    bench.run()
    assert bench.stored() == {"a.log"}
    bench.tables.add_exclusion(
        "w",
        Exclusion(
            type=ExclusionType.PATTERN,
            value="*.log",
            reason="noise",
            error_count=0,
            created_at=bench.clock.now(),
            expires_at=bench.clock.now() + timedelta(days=1),
        ),
    )
    bench.write("a.log", "more")
    bench.run()
    assert bench.stored() == set()


def test_a_sink_that_is_down_stops_the_pass_and_nothing_is_lost(bench: Bench) -> None:
    for number in range(200):
        bench.write(f"{number}")
    bench.store.outage = "no route"
    report = bench.run()
    assert (report.stop_reason, report.ingested, len(report.failures)) == ("no route", 0, 64)
    assert bench.tables.watch("w").health.total_errors == 0
    assert bench.tables.system_state.sink_breaker().consecutive_errors == 1
    bench.store.outage = None
    assert bench.run() == SyncReport(changes=200, ingested=200)
    assert bench.tables.system_state.sink_breaker().consecutive_errors == 0


def test_a_folder_that_is_gone_is_an_error_and_deletes_nothing(bench: Bench) -> None:
    bench.write("a")
    bench.run()
    bench.root.rename(bench.root.with_name("away"))
    with pytest.raises(FolderError, match="E4503"):
        bench.run()
    assert bench.tables.watch("w").unavailable_reason == f"{bench.root} is not there"
    assert len(bench.store.paths("docs")) == 1
    bench.root.with_name("away").rename(bench.root)
    assert bench.run() == SyncReport()
    assert bench.tables.watch("w").unavailable_reason is None

"""A batch of files: one outcome per file, independent of the others; an unchanged file is not embedded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.pdf_file import pdf_of
from vedette.errors import IngestError
from vedette.handshake.failures import FailureKind
from vedette.search.embedding import HashingEmbedder
from vedette.search.file_reader import read_file
from vedette.search.ingestion import FileOutcome, IngestRequest, VectorIngestor
from vedette.testing import ManualClock
from vedette.testing.vectors import MemoryVectorStore


class CountingEmbedder(HashingEmbedder):
    def __init__(self) -> None:
        super().__init__(32)
        self.texts = 0

    def embed(self, texts: Sequence[str]) -> Any:
        self.texts += len(texts)
        return super().embed(texts)


class Harness:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.embedder, self.store = CountingEmbedder(), MemoryVectorStore()
        self.ingestion = VectorIngestor(self.embedder, self.store, ManualClock(), max_file_bytes=10_000)

    def file(self, name: str, *, delete: bool = False) -> IngestRequest:
        return IngestRequest(path=str(self.root / name), watch_id="w", collection="docs", delete=delete)

    def ingest(self, *names: str) -> dict[str, FileOutcome]:
        outcomes = self.ingestion.ingest([self.file(name) for name in names])
        assert [Path(outcome.file.path).name for outcome in outcomes] == list(names)
        return {Path(outcome.file.path).name: outcome for outcome in outcomes}


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


def test_failing_file_does_not_fail_its_batch(harness: Harness) -> None:
    (harness.root / "good.md").write_text("# Title\nwords\n")
    (harness.root / "bad.pdf").write_bytes(b"%PDF-1.4 broken")
    (harness.root / "picture.txt").write_bytes(b"\x89PNG\r\n\x00\x00\x00")
    (harness.root / "large.txt").write_text("x" * 10_001)
    os.mkfifo(harness.root / "pipe")
    (harness.root / "paper.pdf").write_bytes(pdf_of(["a page of text"]))
    (harness.root / "empty.txt").write_text("")
    names = ("bad.pdf", "good.md", "picture.txt", "large.txt", "pipe", "gone.txt", "paper.pdf", "empty.txt")
    outcomes = harness.ingest(*names)
    assert {name: str(outcome.status) for name, outcome in outcomes.items()} == {
        "bad.pdf": "failed",
        "good.md": "ingested",
        "picture.txt": "failed",
        "large.txt": "failed",
        "pipe": "failed",
        "gone.txt": "removed",
        "paper.pdf": "ingested",
        "empty.txt": "ingested",
    }
    failures = {name: outcome.failure for name, outcome in outcomes.items() if outcome.failure is not None}
    assert {name: (failure.error_type, failure.kind) for name, failure in failures.items()} == {
        "bad.pdf": ("E4512", FailureKind.DATA),
        "picture.txt": ("E4512", FailureKind.DATA),
        "large.txt": ("E4513", FailureKind.DATA),
        "pipe": ("E4511", FailureKind.PERMISSION),
    }
    assert {Path(path).name for path in harness.store.paths("docs")} == {"good.md", "paper.pdf"}


def test_unchanged_file_is_not_embedded(harness: Harness) -> None:
    (harness.root / "a.txt").write_text("words")
    (harness.root / "b.txt").write_text("words")
    harness.ingest("a.txt", "b.txt")
    assert (harness.embedder.texts, harness.store.files_written) == (2, 2)
    os.utime(harness.root / "a.txt")
    (harness.root / "b.txt").write_text("other words")
    outcomes = harness.ingest("a.txt", "b.txt")
    assert [str(each.status) for each in outcomes.values()] == ["unchanged", "ingested"]
    assert (harness.embedder.texts, harness.store.files_written) == (3, 3)


def test_another_embedder_replaces_all_vectors(harness: Harness) -> None:
    (harness.root / "a.txt").write_text("words")
    harness.ingest("a.txt")
    harness.embedder.name = "newer-32"
    assert harness.ingest("a.txt")["a.txt"].status == "ingested"
    assert harness.ingest("a.txt")["a.txt"].status == "unchanged"


def test_deletion_removes_the_chunks(harness: Harness) -> None:
    (harness.root / "a.txt").write_text("words")
    harness.ingest("a.txt")
    (outcome,) = harness.ingestion.ingest([harness.file("a.txt", delete=True)])
    assert outcome.status == "removed"
    assert harness.store.paths("docs") == set()


def test_file_that_became_unusable_loses_its_chunks(harness: Harness) -> None:
    (harness.root / "a.txt").write_text("words")
    harness.ingest("a.txt")
    (harness.root / "a.txt").write_bytes(b"\0\1\2\3")
    assert harness.ingest("a.txt")["a.txt"].status == "failed"
    assert harness.store.paths("docs") == set()


def test_store_outage_is_a_sink_failure(harness: Harness) -> None:
    (harness.root / "a.txt").write_text("words")
    harness.store.outage = "no route"
    kinds = {
        outcome.failure.kind for outcome in harness.ingest("a.txt", "gone.txt").values() if outcome.failure
    }
    assert kinds == {FailureKind.SINK}
    harness.store.outage = None
    assert harness.ingest("a.txt")["a.txt"].status == "ingested"


def test_embedder_failure_fails_only_files_that_need_it(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    (harness.root / "a.txt").write_text("words")
    harness.ingest("a.txt")
    (harness.root / "b.txt").write_text("words")

    def broken(texts: Sequence[str]) -> Any:
        raise IngestError("E4522", "no model")

    monkeypatch.setattr(harness.embedder, "embed", broken)
    outcomes = harness.ingest("a.txt", "b.txt", "gone.txt")
    assert [str(each.status) for each in outcomes.values()] == ["unchanged", "failed", "removed"]
    failure = outcomes["b.txt"].failure
    assert failure is not None
    assert (failure.kind, failure.error_type) == (FailureKind.SINK, "E4522")


def test_file_written_while_it_is_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_text("one")
    real, calls = os.fstat, []

    def writing(descriptor: int) -> os.stat_result:
        calls.append(descriptor)
        if len(calls) == 2:
            path.write_text("one two")
        return real(descriptor)

    monkeypatch.setattr(os, "fstat", writing)
    with pytest.raises(IngestError, match="E4514"):
        read_file(str(path))

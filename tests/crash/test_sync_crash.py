"""SIGKILL of a sync at any time: finally the vector store equals a clean rebuild, without orphans or duplicates."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from tests.crash.processes.folder_storm import content
from vedette.clock import SystemClock
from vedette.handshake.config import WatchFolderConfig
from vedette.handshake.tables import HandshakeTables
from vedette.search.embedding import HashingEmbedder
from vedette.search.ingestion import IngestRequest, VectorIngestor
from vedette.search.vectors.qdrant import QdrantStore

RUNNER = Path(__file__).parent / "processes" / "sync_runner.py"
EMBEDDER = HashingEmbedder(32)


class Runner:
    """A process of `sync_runner.py` on a data directory."""

    def __init__(self, data: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(RUNNER), str(data)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )

    def start(self) -> None:
        self._send("start")
        assert self.line() == "ready"

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip()

    def end(self, how: str) -> int:
        """Send `kill` or `wait`. Return the exit code of the sync."""
        self._send(how)
        while not (line := self.line()).startswith("ended "):
            assert line
        return int(line.split()[1])

    def _send(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()

    def close(self) -> None:
        self._process.communicate(timeout=100)
        assert self._process.returncode == 0


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    created = Runner(tmp_path / "data")
    yield created
    created.close()


def storm(root: Path, rng: random.Random) -> None:
    for _ in range(rng.randint(3, 12)):
        path = root / f"{rng.randrange(40)}.md"
        if rng.random() < 0.25 and path.exists():
            path.unlink()
        elif rng.random() < 0.2 and path.exists():
            path.rename(root / f"{rng.randrange(40)}.md")
        else:
            lines = [f"# {rng.random()}\n{'word ' * rng.randrange(600)}" for _ in range(rng.randrange(1, 6))]
            path.write_text("\n".join(lines))


@pytest.mark.parametrize("seed", [1, 2])
def test_sync_survives_repeated_kills(tmp_path: Path, runner: Runner, seed: int) -> None:
    rng, root, data = random.Random(seed), tmp_path / "root", tmp_path / "data"
    root.mkdir()
    with HandshakeTables(data / "handshake.db") as tables:
        tables.add_watch(WatchFolderConfig(watch_id="w", path=str(root), collection="docs"))
    for _ in range(5):
        storm(root, rng)
        runner.start()
        for _ in range(rng.randrange(3)):  # one batch later
            if runner.line() == "done":
                break
        Event().wait(rng.random() * 0.05)  # kill at a random time
        runner.end("kill")
    storm(root, rng)
    for _ in range(2):  # the second scan finds files that were written too recently for the first one
        runner.start()
        assert runner.end("wait") == 0
    clean = QdrantStore(tmp_path / "clean")
    files = [IngestRequest(path=str(path), watch_id="w", collection="docs") for path in root.iterdir()]
    VectorIngestor(EMBEDDER, clean, SystemClock()).ingest(files)
    clean.close()
    assert content(data / "vectors", EMBEDDER) == content(tmp_path / "clean", EMBEDDER)

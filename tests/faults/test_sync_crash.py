"""Killed at any moment: in the end the vector store is what a clean rebuild is, no chunk orphaned or doubled."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.folder_storm import content
from vedette.clock import SystemClock
from vedette.handshake.configs import WatchFolderConfig
from vedette.handshake.tables import HandshakeTables
from vedette.ingest.embedding import HashingEmbedder
from vedette.ingest.ingestion import FileToIngest, Ingestion
from vedette.ingest.qdrant import QdrantVectors

RUNNER = Path(__file__).with_name("sync_runner.py")
EMBEDDER = HashingEmbedder(32)


def start(data: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, str(RUNNER), str(data)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def storm(root: Path, chance: random.Random) -> None:
    for _ in range(chance.randint(3, 12)):
        path = root / f"{chance.randrange(40)}.md"
        if chance.random() < 0.25 and path.exists():
            path.unlink()
        elif chance.random() < 0.2 and path.exists():
            path.rename(root / f"{chance.randrange(40)}.md")
        else:
            lines = [
                f"# {chance.random()}\n{'word ' * chance.randrange(600)}"
                for _ in range(chance.randrange(1, 6))
            ]
            path.write_text("\n".join(lines))


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_again_and_again(tmp_path: Path, seed: int) -> None:
    chance, root, data = random.Random(seed), tmp_path / "root", tmp_path / "data"
    root.mkdir()
    with HandshakeTables(data / "handshake.db") as tables:
        tables.add_watch(WatchFolderConfig(watch_id="w", path=str(root), collection="docs"))
    for _ in range(5):
        storm(root, chance)
        process = start(data)
        assert process.stdout is not None
        for _ in range(chance.randrange(3)):
            process.stdout.readline()  # a batch further
        try:
            process.wait(timeout=chance.random() * 0.05)
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate()
    storm(root, chance)
    for _ in range(2):  # the second finds what was written too recently to be sure of
        process = start(data)
        process.communicate(timeout=100)
        assert process.returncode == 0
    clean = QdrantVectors(tmp_path / "clean")
    files = [FileToIngest(path=str(path), watch_id="w", collection="docs") for path in root.iterdir()]
    Ingestion(EMBEDDER, clean, SystemClock()).ingest(files)
    clean.close()
    assert content(data / "vectors", EMBEDDER) == content(tmp_path / "clean", EMBEDDER)

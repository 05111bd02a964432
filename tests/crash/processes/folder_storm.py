"""Random changes to a folder, and the chunks that must finally be stored. For tests that kill the daemon."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from vedette.clock import SystemClock
from vedette.search.embedding import Embedder, HashingEmbedder
from vedette.search.ingestion import IngestRequest, VectorIngestor
from vedette.search.vectors.qdrant import QdrantStore

__all__ = ["EMBEDDER", "content", "rebuilt", "storm"]

EMBEDDER = HashingEmbedder()
_NAMES = 60


def storm(root: Path, rng: random.Random, times: int) -> None:
    """Apply random changes: create, write in parts, rename, move and delete trees, write damaged files."""
    for _ in range(times):
        path = root / f"{rng.randrange(4)}" / f"{rng.randrange(_NAMES)}.md"
        path.parent.mkdir(exist_ok=True)
        choice = rng.random()
        if choice < 0.15:
            path.unlink(missing_ok=True)
        elif choice < 0.25 and path.exists():
            path.rename(path.with_name(f"{rng.randrange(_NAMES)}.md"))
        elif choice < 0.28:
            target = root / f"{rng.randrange(4)}"
            if not target.exists():
                path.parent.rename(target)
        elif choice < 0.30:
            shutil.rmtree(path.parent)
        elif choice < 0.35:
            path.with_suffix(".pdf").write_bytes(b"%PDF-1.4 damaged " + rng.randbytes(8))
        else:
            with path.open("w") as file:
                for _ in range(rng.randrange(1, 4)):
                    file.write(f"# {rng.random()}\n{'word ' * rng.randrange(400)}\n")
                    file.flush()


def content(directory: Path, embedder: Embedder = EMBEDDER) -> list[tuple[str, str, int]]:
    """Return path, text and first line of every chunk. Duplicates occur twice."""
    store = QdrantStore(directory)
    try:
        count = store.count_by_collection().get("docs", 0)
        hits = store.search("docs", embedder.embed(["x"])[0], embedder.name, max(1, count))
        assert len(hits) == count
        return sorted((hit.path, hit.text, hit.start) for hit in hits)
    finally:
        store.close()


def rebuilt(root: Path, directory: Path) -> list[tuple[str, str, int]]:
    """Ingest the folder into an empty store. Return its chunks."""
    clean = QdrantStore(directory)
    files = [
        IngestRequest(path=str(path), watch_id="w", collection="docs")
        for path in root.rglob("*")
        if path.is_file()
    ]
    VectorIngestor(EMBEDDER, clean, SystemClock()).ingest(files)
    clean.close()
    return content(directory)

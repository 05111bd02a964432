"""The first ingest by other systems: the same files, embedder and store (Qdrant in a folder).

`python -m benchmarks.files.peers NAME ROOT DIRECTORY` prints seconds and points. Each system is used as its
documentation shows, with chunks of about the same size, and embeds all chunks of a file in one call.

Qdrant's local mode calls fsync for every point, which would be nine tenths of the time on every side. Vedette disables
that, so the other systems get a store with the same change (`QuickClient`), synced once at the end. The comparison is
then about the work of each system.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from qdrant_client import QdrantClient, models

from vedette.search.embedding import WordLlamaEmbedder
from vedette.search.vectors.qdrant_local import enable_wal, fsync_wal

__all__ = ["PEERS"]

CHARACTERS, OVERLAP = 1_600, 200
WORDS, WORDS_OVERLAP = 160, 20
"""About the same size, for a splitter that counts words."""


class QuickClient(QdrantClient):  # type: ignore[misc]
    """A Qdrant client whose files use the write-ahead log, as Vedette's do."""

    _files: list[Path]

    def create_collection(self, collection_name: str, *args: Any, **named: Any) -> bool:
        made = bool(super().create_collection(collection_name, *args, **named))
        file = enable_wal(self, collection_name)
        assert file is not None, "it looks otherwise inside than it did"
        self._files = [file]
        return made

    def sync(self) -> None:
        for file in self._files:
            fsync_wal(file)


def _collection(client: QdrantClient, size: int) -> None:
    client.create_collection(
        "bench", vectors_config=models.VectorParams(size=size, distance=models.Distance.COSINE)
    )


def with_llama_index(root: Path, place: Path) -> int:
    """SimpleDirectoryReader ▸ SentenceSplitter ▸ embedding ▸ points."""
    from llama_index.core import SimpleDirectoryReader
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.ingestion import IngestionPipeline
    from llama_index.core.node_parser import SentenceSplitter

    embedder = WordLlamaEmbedder()

    class Shared(BaseEmbedding):  # type: ignore[misc]
        def _get_text_embedding(self, text: str) -> list[float]:
            return embedder.embed([text])[0].tolist()

        def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
            return embedder.embed(texts).tolist()  # type: ignore[no-any-return]

        def _get_query_embedding(self, query: str) -> list[float]:
            return self._get_text_embedding(query)

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return self._get_text_embedding(query)

    client = QuickClient(path=str(place))
    _collection(client, embedder.dimensions)
    documents = SimpleDirectoryReader(str(root), recursive=True, filename_as_id=True).load_data()
    splitter = SentenceSplitter(
        chunk_size=WORDS, chunk_overlap=WORDS_OVERLAP, tokenizer=str.split, include_metadata=False
    )
    nodes = IngestionPipeline(transformations=[splitter, Shared(embed_batch_size=512)]).run(
        documents=documents
    )
    for start in range(0, len(nodes), 256):
        some = nodes[start : start + 256]
        points = [
            models.PointStruct(
                id=node.node_id, vector=node.embedding, payload={**node.metadata, "text": node.text}
            )
            for node in some
        ]
        client.upsert("bench", points, wait=True)
    client.sync()
    return int(client.count("bench").count)


def with_cocoindex(root: Path, place: Path) -> int:
    """walk_dir ▸ RecursiveSplitter ▸ embedding ▸ its Qdrant target. It records its progress in LMDB."""
    os.environ["COCOINDEX_DB"] = str(place.with_suffix(".lmdb"))
    os.environ["COCOINDEX_DISABLE_USAGE_TRACKING"] = "1"
    import cocoindex as coco
    import numpy as np
    from cocoindex.connectors import localfs, qdrant
    from cocoindex.ops.text import RecursiveSplitter
    from cocoindex.resources.schema import VectorSchema

    client, embedder, splitter = QuickClient(path=str(place)), WordLlamaEmbedder(), RecursiveSplitter()
    database = coco.ContextKey[QdrantClient]("qdrant")

    @coco.lifespan
    async def lifespan(builder: Any) -> Any:
        builder.provide(database, client)
        yield

    @coco.fn(memo=True)
    async def process_file(file: Any, target: Any) -> None:
        text = await file.read_text()
        path = str(file.file_path.path)
        chunks = splitter.split(text, chunk_size=CHARACTERS, chunk_overlap=OVERLAP, language="python")
        vectors = embedder.embed([chunk.text for chunk in chunks])
        for number, (chunk, vector) in enumerate(zip(chunks, vectors, strict=True)):
            payload = {"path": path, "start": chunk.start.line, "end": chunk.end.line, "text": chunk.text}
            id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{path}:{number}"))
            target.declare_point(models.PointStruct(id=id, vector=vector.tolist(), payload=payload))

    @coco.fn
    async def app_main(sourcedir: Path) -> None:
        shape = VectorSchema(dtype=np.dtype(np.float32), size=embedder.dimensions)
        schema = await qdrant.CollectionSchema.create(vectors=qdrant.QdrantVectorDef(schema=shape))
        target = await qdrant.mount_collection_target(database, "bench", schema)
        await coco.mount_each(process_file, localfs.walk_dir(sourcedir, recursive=True).items(), target)

    coco.App(coco.AppConfig(name="bench"), app_main, sourcedir=root).update_blocking()
    client.sync()
    return int(client.count("bench").count)


PEERS: Mapping[str, Callable[[Path, Path], int]] = {
    "cocoindex": with_cocoindex,
    "llama-index-core": with_llama_index,
}

if __name__ == "__main__":
    name, root, place = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    WordLlamaEmbedder()  # the time for imports counts for no side
    began, cpu = time.perf_counter(), time.process_time()
    points = PEERS[name](root, place)
    print(f"result {time.perf_counter() - began} {time.process_time() - cpu} {points}", flush=True)
    os._exit(0)

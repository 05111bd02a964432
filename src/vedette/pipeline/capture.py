"""Recorded change streams: taken from the journal, sampled and made harmless, kept as Parquet (seed §7).

A capture is a folder, on any file system that Spark can write to: `changes/` with the columns of the journal, `index/`
with the files of the subscription index that the changes are to be held against, cut into pieces; both Parquet.
Documents are sampled by key, so that the history of one is there whole or not at all. Masked fields keep which values
are equal, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from vedette.pipeline.datasource import JournalSource
from vedette.pipeline.schema import JOURNAL, PROGRESS, spark_schema
from vedette.sources.images import decode_image, encode_image
from vedette.sources.stable_hash import text_hash
from vedette.subscriptions.index_files import latest_version, open_version

__all__ = ["capture", "masked", "sampled", "take_index"]

_WHOLE = 2**64
_INDEX = "name string, place bigint, data binary"
_PIECE = 4 * 1024 * 1024
"""Bytes of a file in one row."""


def capture(
    session: SparkSession,
    journal: str,
    index: Path,
    out: str,
    *,
    after: int = 0,
    share: float = 1.0,
    mask: Sequence[str] = (),
    salt: str = "",
) -> int:
    """Write a capture of the journal after an offset; returns how many changes it has. `share` of all documents."""
    session.dataSource.register(JournalSource)
    options = {"journal": journal, "index": str(index), "start": str(after)}
    changes = session.read.format(JournalSource.name()).options(**options).load()
    harmless = changes.where(f"op <> '{PROGRESS}'").mapInArrow(
        _through(share, tuple(mask), salt), spark_schema(JOURNAL)
    )
    harmless.write.mode("overwrite").parquet(f"{out}/changes")
    _keep_index(session, index, f"{out}/index")
    return _written(session, out).count()


def _written(session: SparkSession, out: str) -> DataFrame:
    return session.read.parquet(f"{out}/changes")


def _keep_index(session: SparkSession, index: Path, out: str) -> None:
    """The latest version and its files, so that a replay needs nothing else."""
    pieces = [
        (name, place, data[place : place + _PIECE])
        for name, data in _files(index)
        for place in range(0, len(data), _PIECE)
    ]
    session.createDataFrame(pieces, _INDEX).write.mode("overwrite").parquet(out)


def _files(index: Path) -> Iterator[tuple[str, bytes]]:
    version = latest_version(index)
    manifest = open_version(index, version).manifest
    yield f"v{version:012d}.json", msgspec.json.encode(manifest)
    for held in manifest.collections.values():
        for files in held.values():
            for name in (files.tombstones, *(segment.file for segment in files.segments)):
                if name is not None:
                    yield name, (index / name).read_bytes()


def take_index(session: SparkSession, capture: str, folder: Path) -> None:
    """Lay the index of a capture down in a folder of this machine, where it can be mapped."""
    pieces = session.read.schema(_INDEX).parquet(f"{capture}/index")
    for piece in pieces.orderBy("name", "place").toLocalIterator():
        with (folder / piece["name"]).open("ab") as file:
            file.write(piece["data"])


def _through(
    share: float, mask: tuple[str, ...], salt: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [
                row
                for row in batch.to_pylist()
                if sampled(row["tenant"], row["collection"], row["key"], share)
            ]
            for row in rows if mask else ():
                for side in ("before", "after"):
                    row[side] = masked(row[side], mask, salt)
            yield pa.RecordBatch.from_pylist(rows, schema=JOURNAL)

    return through


def sampled(tenant: str, collection: str, key: str, share: float) -> bool:
    """Whether a document belongs to the sample; always the same answer."""
    return text_hash(f"sample\0{tenant}\0{collection}\0{key}") < share * _WHOLE


def masked(image: bytes | None, mask: Sequence[str], salt: str) -> bytes | None:
    """The image with the values at these dotted paths replaced by a code; equal values have equal codes."""
    if image is None:
        return None
    document = decode_image(image)
    for path in mask:
        *way, last = path.split(".")
        holder: Any = document
        for name in way:
            holder = holder.get(name) if isinstance(holder, dict) else None
        if isinstance(holder, dict) and holder.get(last) is not None:
            holder[last] = _code(salt, holder[last])
    return encode_image(document)


def _code(salt: str, value: object) -> str:
    return f"#{text_hash(salt + repr(value)):016x}"

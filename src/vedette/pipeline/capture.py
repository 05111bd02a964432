"""Recorded change streams: taken from the journal, sampled and made harmless, kept as Parquet (seed §7).

A capture is a folder: `changes/` as Parquet with the columns of the journal, `index/` with the version of the
subscription index that the changes are to be held against. Documents are sampled by key, so that the history of one is
there whole or not at all. Masked fields keep which values are equal, and nothing else.
"""

from __future__ import annotations

import shutil
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

__all__ = ["capture", "masked", "sampled"]

_WHOLE = 2**64


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
    _copy_index(index, Path(out) / "index")
    return _written(session, out).count()


def _written(session: SparkSession, out: str) -> DataFrame:
    return session.read.parquet(f"{out}/changes")


def _copy_index(index: Path, out: Path) -> None:
    """The latest version and its files, so that a replay needs nothing else."""
    version = latest_version(index)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    manifest = open_version(index, version).manifest
    (out / f"v{version:012d}.json").write_bytes(msgspec.json.encode(manifest))
    for held in manifest.collections.values():
        for files in held.values():
            for name in (files.tombstones, *(segment.file for segment in files.segments)):
                if name is not None:
                    shutil.copyfile(index / name, out / name)


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

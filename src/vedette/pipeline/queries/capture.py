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
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from vedette.errors import PipelineError, SourceError
from vedette.hashing import text_hash
from vedette.pipeline.datasource import JournalSource
from vedette.pipeline.schema import JOURNAL, PROGRESS, spark_schema
from vedette.sources.images import decode_image, encode_image
from vedette.subscriptions.index.versions import latest_version, open_version

__all__ = ["capture", "mask_image", "mask_row", "sampled", "take_index"]

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
    try:
        pieces = session.read.schema(_INDEX).parquet(f"{capture}/index")
    except AnalysisException as problem:
        text = f"{capture} is no capture: give what `vedette capture --out` wrote ({problem.getMessage()})"
        raise PipelineError("E6303", text, fields={"capture": capture}) from problem
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
            if mask:
                rows = [row for row in rows if mask_row(row, mask, salt)]
            yield pa.RecordBatch.from_pylist(rows, schema=JOURNAL)

    return through


def sampled(tenant: str, collection: str, key: str, share: float) -> bool:
    """Whether a document belongs to the sample; always the same answer."""
    return text_hash(f"sample\0{tenant}\0{collection}\0{key}") < share * _WHOLE


def mask_row(row: dict[str, Any], mask: Sequence[str], salt: str) -> bool:
    """Make a row of the journal harmless; False when that cannot be done, as with an image that is none.

    A key that is made of a masked value becomes a code, too, and so does the id of the change, which may hold it.
    """
    hidden: set[str] = set()
    try:
        for side in ("before", "after"):
            row[side] = mask_image(row[side], mask, salt, hidden)
    except SourceError:
        return False
    if any(value in _key_parts(row["key"]) for value in hidden):
        row["key"] = _pseudonym(salt, row["key"])
        row["event_id"] = _pseudonym(salt, row["event_id"])
    return True


def mask_image(
    image: bytes | None, mask: Sequence[str], salt: str, hidden: set[str] | None = None
) -> bytes | None:
    """The image with the values at these dotted paths replaced by a code; equal values have equal codes. A path goes
    through lists. `hidden` takes the values that were there, as texts."""
    if image is None:
        return None
    document = decode_image(image)
    for path in mask:
        _mask_path(document, path.split("."), salt, hidden if hidden is not None else set())
    return encode_image(document)


def _mask_path(holder: Any, way: Sequence[str], salt: str, hidden: set[str]) -> None:
    if isinstance(holder, list):
        for item in holder:
            _mask_path(item, way, salt, hidden)
    elif isinstance(holder, dict):
        name, *rest = way
        if rest:
            _mask_path(holder.get(name), rest, salt, hidden)
            _mask_path(holder, [f"{name}.{rest[0]}", *rest[1:]], salt, hidden)  # a name may have a dot in it
        elif holder.get(name) is not None:
            hidden.update(_texts(holder[name]))
            holder[name] = _pseudonym(salt, holder[name])


def _key_parts(key: str) -> set[str]:
    """A key, and what it is made of when it is a JSON list or map of several."""
    try:
        return {key, *_texts(msgspec.json.decode(key))}
    except msgspec.DecodeError:
        return {key}


def _texts(value: Any) -> set[str]:
    """The scalars of a value, as texts."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return set().union(*map(_texts, value))
    return set() if value is None else {str(value)}


def _pseudonym(salt: str, value: object) -> str:
    return f"#{text_hash(salt + repr(value)):016x}"

"""Captures: a recorded change stream, sampled and masked, as Parquet.

    read(vedette_journal) ▸ drop the range ends ▸ mapInArrow(SampleAndMask) ▸ Parquet

A capture is a folder on any file system that Spark can write to. `changes/` has the columns of the journal. `index/`
has the files of the subscription index at the time of the capture, cut into pieces. Both are Parquet. Documents are
sampled by key, so the history of a document is complete or absent. Masked values stay comparable: equal values have
equal pseudonyms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from vedette.errors import PipelineError, SourceError
from vedette.hashing import text_hash
from vedette.pipeline.datasource import JournalDataSource, journal_options
from vedette.pipeline.schema import CHANGE_ROWS, spark_schema
from vedette.pipeline.task import PipelineConfig
from vedette.sources.images import decode_image, encode_image
from vedette.subscriptions.index.versions import latest_version, open_version

__all__ = ["SampleAndMask", "capture", "is_sampled", "mask_image", "mask_row", "restore_index"]

HASH_RANGE = 2**64
CHUNK_BYTES = 4 * 1024 * 1024
"""Bytes of an index file in one row."""
_INDEX_COLUMNS = "name string, place bigint, data binary"


def capture(
    spark: SparkSession,
    journal_url: str,
    index: Path,
    out: str,
    *,
    after: int = 0,
    sample_rate: float = 1.0,
    mask: Sequence[str] = (),
    salt: str = "",
) -> int:
    """Write the changes after a journal offset, and the index. Return the number of changes.

    `sample_rate` is the share of documents to include. `mask` has dotted paths whose values become pseudonyms;
    `salt` makes the pseudonyms of two captures incomparable.
    """
    spark.dataSource.register(JournalDataSource)
    config = PipelineConfig(journal_url=journal_url, registry_url="", index_folder=index)
    changes = (
        spark.read.format(JournalDataSource.name()).options(**journal_options(config, start=after)).load()
    )
    masked = (
        changes.where("range_end IS NULL")
        .select(*CHANGE_ROWS.names)
        .mapInArrow(SampleAndMask(sample_rate, tuple(mask), salt), spark_schema(CHANGE_ROWS))
    )
    masked.write.mode("overwrite").parquet(f"{out}/changes")
    _write_index(spark, index, f"{out}/index")
    return spark.read.parquet(f"{out}/changes").count()


def _write_index(spark: SparkSession, index: Path, out: str) -> None:
    """Write the latest index version and its files, so that a replay needs nothing else."""
    chunks = [
        (name, start, data[start : start + CHUNK_BYTES])
        for name, data in _index_files(index)
        for start in range(0, len(data), CHUNK_BYTES)
    ]
    spark.createDataFrame(chunks, _INDEX_COLUMNS).write.mode("overwrite").parquet(out)


def _index_files(index: Path) -> Iterator[tuple[str, bytes]]:
    version = latest_version(index)
    manifest = open_version(index, version).manifest
    yield f"v{version:012d}.json", msgspec.json.encode(manifest)
    for collections in manifest.collections.values():
        for files in collections.values():
            for name in (files.tombstones, *(segment.file for segment in files.segments)):
                if name is not None:
                    yield name, (index / name).read_bytes()


def restore_index(spark: SparkSession, capture: str, folder: Path) -> None:
    """Write the index files of a capture to a local folder, where they can be memory-mapped.

    Raise PipelineError E6303 if the folder is not a capture.
    """
    try:
        chunks = spark.read.schema(_INDEX_COLUMNS).parquet(f"{capture}/index")
    except AnalysisException as problem:
        text = (
            f"{capture} is not a capture. Give a folder that `vedette capture --out` wrote "
            f"({problem.getMessage()})"
        )
        raise PipelineError("E6303", text, fields={"capture": capture}) from problem
    for chunk in chunks.orderBy("name", "place").toLocalIterator():
        with (folder / chunk["name"]).open("ab") as file:
            file.write(chunk["data"])


@dataclass(frozen=True)
class SampleAndMask:
    """Runs once per Spark task: drop documents that are not in the sample, and mask the others."""

    sample_rate: float
    mask: tuple[str, ...]
    salt: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [
                row
                for row in batch.to_pylist()
                if is_sampled(row["tenant"], row["collection"], row["key"], self.sample_rate)
            ]
            if self.mask:
                rows = [row for row in rows if mask_row(row, self.mask, self.salt)]
            yield pa.RecordBatch.from_pylist(rows, schema=CHANGE_ROWS)


def is_sampled(tenant: str, collection: str, key: str, sample_rate: float) -> bool:
    """Return True if a document belongs to the sample. The answer depends on nothing but the arguments."""
    return text_hash(f"sample\0{tenant}\0{collection}\0{key}") < sample_rate * HASH_RANGE


def mask_row(row: dict[str, Any], mask: Sequence[str], salt: str) -> bool:
    """Mask a journal row in place. Return False if its images cannot be decoded; the row must then be dropped.

    If the key contains a masked value, the key and the event id become pseudonyms too.
    """
    masked_values: set[str] = set()
    try:
        for side in ("before", "after"):
            row[side] = mask_image(row[side], mask, salt, masked_values)
    except SourceError:
        return False
    if any(value in _key_parts(row["key"]) for value in masked_values):
        row["key"] = _pseudonym(salt, row["key"])
        row["event_id"] = _pseudonym(salt, row["event_id"])
    return True


def mask_image(
    image: bytes | None, mask: Sequence[str], salt: str, masked_values: set[str] | None = None
) -> bytes | None:
    """Replace the values at the dotted paths by pseudonyms; equal values have equal pseudonyms.

    A path also reaches into the items of lists. The original values are added to `masked_values`, as texts.
    """
    if image is None:
        return None
    document = decode_image(image)
    for path in mask:
        _mask_path(document, path.split("."), salt, masked_values if masked_values is not None else set())
    return encode_image(document)


def _mask_path(value: Any, path: Sequence[str], salt: str, masked_values: set[str]) -> None:
    if isinstance(value, list):
        for item in value:
            _mask_path(item, path, salt, masked_values)
    elif isinstance(value, dict):
        name, *rest = path
        if rest:
            _mask_path(value.get(name), rest, salt, masked_values)
            # A field name may contain a dot.
            _mask_path(value, [f"{name}.{rest[0]}", *rest[1:]], salt, masked_values)
        elif value.get(name) is not None:
            masked_values.update(_scalars(value[name]))
            value[name] = _pseudonym(salt, value[name])


def _key_parts(key: str) -> set[str]:
    """Return the key, and its scalars if it is the JSON of several key columns."""
    try:
        return {key, *_scalars(msgspec.json.decode(key))}
    except msgspec.DecodeError:
        return {key}


def _scalars(value: Any) -> set[str]:
    """Return the scalars of a value, as texts."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return set().union(*map(_scalars, value))
    return set() if value is None else {str(value)}


def _pseudonym(salt: str, value: object) -> str:
    return f"#{text_hash(salt + repr(value)):016x}"

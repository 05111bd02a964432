"""Files on their way to Spark's workers and back, as Arrow rows.

    to a worker     number, path, known_hash                        a file to prepare
                    number, path, watch_id, collection, delete      a file to ingest there, with a store by URL
    from a worker   number, state, content_hash, chunks, vectors    what was prepared
                    number, state, stored                           what was ingested
                    number, state, error_type, message, kind        in either case: why it could not be used

`number` is the place of the file in its batch. `state` is `prepared`, a value of `Without` or of `OutcomeStatus`, or
`unusable`. `vectors` are the bytes of all rows, little-endian 32-bit floats.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from vedette.handshake.failures import FailureKind
from vedette.search.chunking import Chunk
from vedette.search.document import Place
from vedette.search.ingestion import FileOutcome, FileToIngest, OutcomeStatus
from vedette.search.preparation import FileToRead, PreparedFile, Readiness, Unusable, Without

__all__ = [
    "ANSWER_ROWS",
    "files_of",
    "ingest_rows",
    "outcome_batch",
    "outcomes_of",
    "read_rows",
    "readiness_batch",
    "readiness_of",
]

READ_ROWS = pa.schema([("number", pa.int32()), ("path", pa.string()), ("known_hash", pa.string())])
INGEST_ROWS = pa.schema(
    [
        ("number", pa.int32()),
        ("path", pa.string()),
        ("watch_id", pa.string()),
        ("collection", pa.string()),
        ("delete", pa.bool_()),
    ]
)
_CHUNK = pa.struct(
    [
        ("text", pa.string()),
        ("start", pa.int32()),
        ("end", pa.int32()),
        ("unit", pa.string()),
        ("title", pa.string()),
    ]
)
ANSWER_ROWS = pa.schema(
    [
        ("number", pa.int32()),
        ("state", pa.string()),
        ("content_hash", pa.string()),
        ("chunks", pa.list_(_CHUNK)),
        ("vectors", pa.binary()),
        ("stored", pa.int32()),
        ("error_type", pa.string()),
        ("message", pa.string()),
        ("kind", pa.string()),
    ]
)
_PREPARED = "prepared"
_UNUSABLE = "unusable"


def read_rows(files: Sequence[FileToRead]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {"number": number, "path": file.path, "known_hash": file.known_hash}
            for number, file in enumerate(files)
        ],
        READ_ROWS,
    )


def ingest_rows(files: Sequence[FileToIngest]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "number": number,
                "path": file.path,
                "watch_id": file.watch_id,
                "collection": file.collection,
                "delete": file.delete,
            }
            for number, file in enumerate(files)
        ],
        INGEST_ROWS,
    )


def files_of(batch: pa.RecordBatch) -> tuple[list[int], list[FileToRead] | list[FileToIngest]]:
    """In a worker: the numbers and the files of some rows, of either kind."""
    rows = batch.to_pylist()
    numbers = [row.pop("number") for row in rows]
    if "known_hash" in batch.schema.names:
        return numbers, [FileToRead(**row) for row in rows]
    return numbers, [FileToIngest(**row) for row in rows]


def readiness_batch(numbers: Sequence[int], answers: Sequence[Readiness]) -> pa.RecordBatch:
    return _batch(
        {"number": number, **_readiness_row(each)} for number, each in zip(numbers, answers, strict=True)
    )


def outcome_batch(numbers: Sequence[int], outcomes: Sequence[FileOutcome]) -> pa.RecordBatch:
    return _batch(
        {"number": number, **_outcome_row(each)} for number, each in zip(numbers, outcomes, strict=True)
    )


def readiness_of(table: pa.Table, count: int) -> list[Readiness]:
    """Back in the driver, in the order of the files. A worker that forgot one is refused."""
    return [_readiness(row) for row in _in_order(table, count)]


def outcomes_of(table: pa.Table, count: int) -> list[tuple[OutcomeStatus, int] | Unusable]:
    """Status and chunks of each file, or why not."""
    return [
        _unusable(row)
        if row["state"] == _UNUSABLE
        else (OutcomeStatus(row["state"]), int(row["stored"] or 0))
        for row in _in_order(table, count)
    ]


def _in_order(table: pa.Table, count: int) -> Iterator[dict[str, Any]]:
    numbers = np.asarray(table["number"])
    order = np.argsort(numbers, kind="stable")
    if not np.array_equal(numbers[order], np.arange(count)):
        raise ValueError(f"{count} files went to Spark, and {table.num_rows} answers came back")
    yield from table.take(pa.array(order)).to_pylist()


def _batch(rows: Iterator[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), ANSWER_ROWS)


def _readiness_row(readiness: Readiness) -> dict[str, Any]:
    if isinstance(readiness, Without):
        return {"state": str(readiness)}
    if isinstance(readiness, Unusable):
        return _unusable_row(readiness)
    return {
        "state": _PREPARED,
        "content_hash": readiness.content_hash,
        "chunks": [
            {
                "text": chunk.text,
                "start": chunk.place.start,
                "end": chunk.place.end,
                "unit": chunk.place.unit,
                "title": chunk.title,
            }
            for chunk in readiness.chunks
        ],
        "vectors": np.ascontiguousarray(readiness.vectors, dtype="<f4").tobytes(),
    }


def _outcome_row(outcome: FileOutcome) -> dict[str, Any]:
    failure = outcome.failure
    if failure is None:
        return {"state": str(outcome.status), "stored": outcome.chunks}
    return _unusable_row(Unusable(error_type=failure.error_type, message=failure.message, kind=failure.kind))


def _unusable_row(why: Unusable) -> dict[str, Any]:
    return {
        "state": _UNUSABLE,
        "error_type": why.error_type,
        "message": why.message,
        "kind": str(why.kind),
    }


def _unusable(row: dict[str, Any]) -> Unusable:
    return Unusable(error_type=row["error_type"], message=row["message"], kind=FailureKind(row["kind"]))


def _readiness(row: dict[str, Any]) -> Readiness:
    if row["state"] == _UNUSABLE:
        return _unusable(row)
    if row["state"] != _PREPARED:
        return Without(row["state"])
    chunks = [
        Chunk(
            text=each["text"],
            place=Place(start=each["start"], end=each["end"], unit=each["unit"]),
            title=each["title"],
        )
        for each in row["chunks"]
    ]
    vectors = np.frombuffer(row["vectors"], dtype="<f4").reshape(len(chunks), -1 if chunks else 0)
    return PreparedFile(content_hash=row["content_hash"], chunks=chunks, vectors=vectors)

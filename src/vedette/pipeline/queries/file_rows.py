"""Files on their way to Spark's workers and back, as Arrow rows.

    to a worker     number, path, known_hash                        a file to prepare
                    number, path, watch_id, collection, delete      a file to ingest there, with a store by URL
    from a worker   number, state, content_hash, chunks, vectors    what was prepared
                    number, state, stored                           what was ingested
                    number, state, error_type, message, kind        in either case: why it could not be used

`number` is the index of the file in its batch. `state` is `prepared`, a value of `NothingToStore` or of
`OutcomeStatus`, or `unusable`. `vectors` are the bytes of all rows, little-endian 32-bit floats.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from vedette.handshake.failures import FailureKind
from vedette.search.chunking import Chunk
from vedette.search.document import SourceSpan
from vedette.search.ingestion import FileOutcome, IngestRequest, OutcomeStatus
from vedette.search.preparation import (
    NothingToStore,
    PreparedFile,
    PrepareFailure,
    PrepareRequest,
    PrepareResult,
)

__all__ = [
    "RESULT_ROWS",
    "decode_files",
    "decode_outcomes",
    "decode_prepared",
    "encode_files_to_ingest",
    "encode_files_to_prepare",
    "encode_outcomes",
    "encode_prepared",
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
RESULT_ROWS = pa.schema(
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


def encode_files_to_prepare(files: Sequence[PrepareRequest]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {"number": number, "path": file.path, "known_hash": file.stored_hash}
            for number, file in enumerate(files)
        ],
        READ_ROWS,
    )


def encode_files_to_ingest(files: Sequence[IngestRequest]) -> pa.Table:
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


def decode_files(batch: pa.RecordBatch) -> tuple[list[int], list[PrepareRequest] | list[IngestRequest]]:
    """In a worker: the numbers and the files of some rows, of either kind."""
    rows = batch.to_pylist()
    numbers = [row.pop("number") for row in rows]
    if "known_hash" in batch.schema.names:
        return numbers, [PrepareRequest(**row) for row in rows]
    return numbers, [IngestRequest(**row) for row in rows]


def encode_prepared(numbers: Sequence[int], answers: Sequence[PrepareResult]) -> pa.RecordBatch:
    return _batch(
        {"number": number, **_readiness_row(each)} for number, each in zip(numbers, answers, strict=True)
    )


def encode_outcomes(numbers: Sequence[int], outcomes: Sequence[FileOutcome]) -> pa.RecordBatch:
    return _batch(
        {"number": number, **_outcome_row(each)} for number, each in zip(numbers, outcomes, strict=True)
    )


def decode_prepared(table: pa.Table, count: int) -> list[PrepareResult]:
    """Back in the driver, in the order of the files. A worker that forgot one is refused."""
    return [_readiness(row) for row in _in_order(table, count)]


def decode_outcomes(table: pa.Table, count: int) -> list[tuple[OutcomeStatus, int] | PrepareFailure]:
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
    return pa.RecordBatch.from_pylist(list(rows), RESULT_ROWS)


def _readiness_row(readiness: PrepareResult) -> dict[str, Any]:
    if isinstance(readiness, NothingToStore):
        return {"state": str(readiness)}
    if isinstance(readiness, PrepareFailure):
        return _unusable_row(readiness)
    return {
        "state": _PREPARED,
        "content_hash": readiness.content_hash,
        "chunks": [
            {
                "text": chunk.text,
                "start": chunk.span.start,
                "end": chunk.span.end,
                "unit": chunk.span.unit,
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
    return _unusable_row(
        PrepareFailure(error_type=failure.error_type, message=failure.message, kind=failure.kind)
    )


def _unusable_row(why: PrepareFailure) -> dict[str, Any]:
    return {
        "state": _UNUSABLE,
        "error_type": why.error_type,
        "message": why.message,
        "kind": str(why.kind),
    }


def _unusable(row: dict[str, Any]) -> PrepareFailure:
    return PrepareFailure(error_type=row["error_type"], message=row["message"], kind=FailureKind(row["kind"]))


def _readiness(row: dict[str, Any]) -> PrepareResult:
    if row["state"] == _UNUSABLE:
        return _unusable(row)
    if row["state"] != _PREPARED:
        return NothingToStore(row["state"])
    chunks = [
        Chunk(
            text=each["text"],
            span=SourceSpan(start=each["start"], end=each["end"], unit=each["unit"]),
            title=each["title"],
        )
        for each in row["chunks"]
    ]
    vectors = np.frombuffer(row["vectors"], dtype="<f4").reshape(len(chunks), -1 if chunks else 0)
    return PreparedFile(content_hash=row["content_hash"], chunks=chunks, vectors=vectors)

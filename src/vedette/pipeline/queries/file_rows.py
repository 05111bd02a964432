"""Arrow rows that carry files to Spark's workers and results back.

    to a worker     number, path, stored_hash                       a file to prepare
                    number, path, watch_id, collection, delete      a file to ingest on the executor
    from a worker   number, state, content_hash, chunks, vectors    a prepared file
                    number, state, stored                           an ingested file
                    number, state, error_type, message, kind        a file of either kind that failed

`number` is the index of the file in its batch. `state` is `prepared`, a value of `NothingToStore` or of
`OutcomeStatus`, or `failed`. `vectors` are the bytes of all rows, little-endian 32-bit floats.
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
    "decode_files_to_ingest",
    "decode_files_to_prepare",
    "decode_outcomes",
    "decode_prepared",
    "encode_files_to_ingest",
    "encode_files_to_prepare",
    "encode_outcomes",
    "encode_prepared",
]

PREPARE_ROWS = pa.schema([("number", pa.int32()), ("path", pa.string()), ("stored_hash", pa.string())])
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
_FAILED = "failed"


def encode_files_to_prepare(files: Sequence[PrepareRequest]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {"number": number, "path": file.path, "stored_hash": file.stored_hash}
            for number, file in enumerate(files)
        ],
        PREPARE_ROWS,
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


def decode_files_to_prepare(batch: pa.RecordBatch) -> tuple[list[int], list[PrepareRequest]]:
    """In a worker: return the numbers and the files of some rows."""
    rows = batch.to_pylist()
    files = [PrepareRequest(path=row["path"], stored_hash=row["stored_hash"]) for row in rows]
    return [row["number"] for row in rows], files


def decode_files_to_ingest(batch: pa.RecordBatch) -> tuple[list[int], list[IngestRequest]]:
    """In a worker: return the numbers and the files of some rows."""
    rows = batch.to_pylist()
    files = [
        IngestRequest(
            path=row["path"], watch_id=row["watch_id"], collection=row["collection"], delete=row["delete"]
        )
        for row in rows
    ]
    return [row["number"] for row in rows], files


def encode_prepared(numbers: Sequence[int], results: Sequence[PrepareResult]) -> pa.RecordBatch:
    return _batch(
        {"number": number, **_prepared_row(each)} for number, each in zip(numbers, results, strict=True)
    )


def encode_outcomes(numbers: Sequence[int], outcomes: Sequence[FileOutcome]) -> pa.RecordBatch:
    return _batch(
        {"number": number, **_outcome_row(each)} for number, each in zip(numbers, outcomes, strict=True)
    )


def decode_prepared(table: pa.Table, count: int) -> list[PrepareResult]:
    """In the driver: return the results in the order of the files. Raise ValueError if one is missing."""
    return [_prepared(row) for row in _in_order(table, count)]


def decode_outcomes(table: pa.Table, count: int) -> list[tuple[OutcomeStatus, int] | PrepareFailure]:
    """In the driver: return status and number of chunks of each file, or its failure, in the order of the files."""
    return [
        _failure(row) if row["state"] == _FAILED else (OutcomeStatus(row["state"]), int(row["stored"] or 0))
        for row in _in_order(table, count)
    ]


def _in_order(table: pa.Table, count: int) -> Iterator[dict[str, Any]]:
    numbers = np.asarray(table["number"])
    order = np.argsort(numbers, kind="stable")
    if not np.array_equal(numbers[order], np.arange(count)):
        raise ValueError(f"Spark returned {table.num_rows} results for {count} files")
    yield from table.take(pa.array(order)).to_pylist()


def _batch(rows: Iterator[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), RESULT_ROWS)


def _prepared_row(result: PrepareResult) -> dict[str, Any]:
    if isinstance(result, NothingToStore):
        return {"state": str(result)}
    if isinstance(result, PrepareFailure):
        return _failure_row(result)
    return {
        "state": _PREPARED,
        "content_hash": result.content_hash,
        "chunks": [
            {
                "text": chunk.text,
                "start": chunk.span.start,
                "end": chunk.span.end,
                "unit": chunk.span.unit,
                "title": chunk.title,
            }
            for chunk in result.chunks
        ],
        "vectors": np.ascontiguousarray(result.vectors, dtype="<f4").tobytes(),
    }


def _outcome_row(outcome: FileOutcome) -> dict[str, Any]:
    failure = outcome.failure
    if failure is None:
        return {"state": str(outcome.status), "stored": outcome.chunks}
    return _failure_row(
        PrepareFailure(error_type=failure.error_type, message=failure.message, kind=failure.kind)
    )


def _failure_row(failure: PrepareFailure) -> dict[str, Any]:
    return {
        "state": _FAILED,
        "error_type": failure.error_type,
        "message": failure.message,
        "kind": str(failure.kind),
    }


def _failure(row: dict[str, Any]) -> PrepareFailure:
    return PrepareFailure(error_type=row["error_type"], message=row["message"], kind=FailureKind(row["kind"]))


def _prepared(row: dict[str, Any]) -> PrepareResult:
    if row["state"] == _FAILED:
        return _failure(row)
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

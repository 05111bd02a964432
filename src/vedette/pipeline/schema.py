"""Arrow schemas between the stages. A stage reads columns by name and returns exactly the schema named here.

    JOURNAL ▸ normalize, deduplicate, sequence ▸ CHANGES ▸ match ▸ DELIVERIES ▸ route, deliver
    JOURNAL ▸ windows query: WINDOW_ROWS ▸ WINDOW_EVENTS

Spark derives its own schema from these (`spark_schema`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from vedette.sources.records import ChangeRow

__all__ = [
    "CHANGES",
    "CHANGE_ROWS",
    "DELIVERIES",
    "JOURNAL",
    "WINDOW_EVENTS",
    "WINDOW_ROWS",
    "RangeEnd",
    "journal_rows_to_batch",
    "range_end_to_batch",
    "spark_schema",
    "split_range_end",
]


class RangeEnd(NamedTuple):
    """The last row that a task reads: everything up to `offset` has been read for one share of the partitions."""

    offset: int
    share: int
    shares: int
    index_version: int
    """The index version that the range is matched with."""
    previous_index_version: int = -1
    """Windows: the index version of the previous batch."""
    skipped_changes: int = 0
    """Changes of degraded partitions in the range, which are not delivered."""
    watermark_before_ms: int = 0
    watermark_after_ms: int = 0
    """Windows: the watermarks before and after the range."""


_RANGE_END = pa.struct([(name, pa.int64()) for name in RangeEnd._fields])

CHANGE_ROWS = pa.schema(
    [
        ("offset", pa.int64()),
        ("source", pa.string()),
        ("tenant", pa.string()),
        ("partition", pa.int32()),
        ("epoch", pa.int64()),
        ("seq", pa.int64()),
        ("event_id", pa.string()),
        ("collection", pa.string()),
        ("key", pa.string()),
        ("op", pa.string()),
        ("before", pa.binary()),
        ("after", pa.binary()),
        ("before_known", pa.bool_()),
        ("time_ms", pa.int64()),
        ("appended_ms", pa.int64()),
        ("transaction", pa.string()),
        # Of the range that the row belongs to; the same for all its rows:
        ("version", pa.int64()),  # the index version, pinned in the offset
        ("newer_than", pa.int64()),  # backfill: only for subscriptions newer than this index version; else -1
        ("shed", pa.bool_()),  # the partition lags: skip subscriptions of low priority
    ]
)
"""Changes as the stages and captures have them: a row of the journal and its range."""

JOURNAL = pa.schema([*CHANGE_ROWS, ("range_end", _RANGE_END)])
"""The rows of the data source. `range_end` is null for changes. The last row of a task has only `range_end`."""

CHANGES = pa.schema([*CHANGE_ROWS, ("problem", pa.string())])
"""After normalize. `problem` says why a row cannot be processed; it is null for all other rows."""

_MATCH_ONLY_COLUMNS = ("before_known", "appended_ms", "transaction", "version", "shed")
"""Columns that only matching needs."""

DELIVERIES = pa.schema(
    [
        *(field for field in CHANGES if field.name not in _MATCH_ONLY_COLUMNS),
        ("gateway", pa.int32()),  # -1 for a row with a problem
        ("enter", pa.list_(pa.int64())),
        ("update", pa.list_(pa.int64())),
        ("leave", pa.list_(pa.int64())),
        ("address", pa.string()),  # set by route; null if the gateway is gone
        ("unfiltered", pa.bool_()),  # set by route
    ]
)
"""After match: one row per change and gateway, with the subscriptions of that gateway."""

WINDOW_ROWS = pa.schema(
    [
        ("subscription", pa.int64()),
        ("gateway", pa.int32()),
        ("spec", pa.string()),
        ("created_ms", pa.int64()),
        ("kind", pa.int32()),  # RowKind
        ("offset", pa.int64()),
        ("partition", pa.int32()),
        ("time_ms", pa.int64()),  # the time of a change, or a watermark
        ("appended_ms", pa.int64()),
        ("collection", pa.string()),
        ("key", pa.string()),
        ("before", pa.binary()),  # null unless the watch's condition holds for it
        ("after", pa.binary()),
    ]
)
"""Rows for windowed subscriptions, before Spark groups them by subscription."""

WINDOW_EVENTS = pa.schema(
    [
        ("subscription", pa.int64()),
        ("gateway", pa.int32()),
        ("position", pa.int64()),  # 0 in the row that only counts late changes
        ("payload", pa.binary()),
        ("late", pa.int64()),
    ]
)
"""Events of window ends."""


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the same columns as a Spark schema."""
    return from_arrow_schema(schema)


def journal_rows_to_batch(
    rows: Sequence[ChangeRow], version: int, newer_than: int, shedding: Collection[int] = ()
) -> pa.RecordBatch:
    """Convert journal rows to columns. `shedding` are the partitions that lag."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(ChangeRow._fields)
    arrays = [
        pa.array(column, JOURNAL.field(name).type)
        for name, column in zip(ChangeRow._fields, columns, strict=True)
    ]
    arrays.append(pa.array([version] * len(rows), pa.int64()))
    arrays.append(pa.array([newer_than] * len(rows), pa.int64()))
    arrays.append(pa.array([row.partition in shedding for row in rows], pa.bool_()))
    arrays.append(pa.nulls(len(rows), _RANGE_END))
    return pa.RecordBatch.from_arrays(arrays, schema=JOURNAL)


def range_end_to_batch(range_end: RangeEnd) -> pa.RecordBatch:
    """Return the last row of a task."""
    return pa.RecordBatch.from_pylist([{"range_end": range_end._asdict()}], schema=JOURNAL)


def split_range_end(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, RangeEnd | None]:
    """Return the changes of a batch (CHANGE_ROWS) and the end of the range, if the batch has it as its last row."""
    changes = batch.select(CHANGE_ROWS.names)
    last = batch["range_end"][-1].as_py() if batch.num_rows else None
    if last is None:
        return changes, None
    return changes.slice(0, batch.num_rows - 1), RangeEnd(**last)

"""The columns between stages, field by field. A stage takes them by name and gives exactly what is written here."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa

from vedette.sources.records import ChangeRow

__all__ = [
    "CHANGES",
    "DELIVERIES",
    "JOURNAL",
    "OUTCOME",
    "PROGRESS",
    "WINDOW_EVENTS",
    "WINDOW_ROWS",
    "journal_rows_to_batch",
    "spark_schema",
]

PROGRESS = "progress"
"""The `op` of the last row of a range: no change, but the end of what there is."""

JOURNAL = pa.schema(
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
        # The range that the row belongs to, the same for all rows of a batch.
        ("version", pa.int64()),  # of the registry, pinned in the offset
        (
            "newer_than",
            pa.int64(),
        ),  # for rows read again: only subscriptions that came after this version; else -1
        ("shed", pa.bool_()),  # the partition is behind: subscriptions of low priority are passed over
    ]
)
"""A row of the journal as the data source reads it."""

CHANGES = pa.schema([*JOURNAL, ("problem", pa.string())])
"""After normalize; `problem` says why a row cannot be used, and is null for all others."""

MATCH_ONLY_COLUMNS = ("before_known", "appended_ms", "transaction", "version", "shed")
"""Columns that matching needs and nobody after it."""

DELIVERIES = pa.schema(
    [
        *(field for field in CHANGES if field.name not in MATCH_ONLY_COLUMNS),
        ("gateway", pa.int32()),  # -1 for a row with a problem
        ("enter", pa.list_(pa.int64())),
        ("update", pa.list_(pa.int64())),
        ("leave", pa.list_(pa.int64())),
        ("address", pa.string()),  # after route; null when the gateway is gone
        ("unfiltered", pa.bool_()),  # after route
    ]
)
"""After match: a change beside the subscriptions of one gateway."""

OUTCOME = pa.schema(
    [
        ("changes", pa.int64()),
        ("deliveries", pa.int64()),
        ("matches", pa.int64()),
        ("undeliverable", pa.int64()),
        ("quarantined", pa.int64()),
        ("skipped", pa.int64()),  # changes of degraded partitions, which nobody is told
        ("shed", pa.int64()),  # matches of low priority that were passed over
        ("broadcast", pa.int64()),  # deliveries that are unfiltered
        ("repeated", pa.int64()),  # changes of tasks that ran before and failed
        # What the worker counted meanwhile (vedette.pipeline.telemetry).
        ("candidates", pa.int64()),
        ("faults", pa.int64()),
        ("absent", pa.int64()),
        ("passed", pa.int64()),
        ("match_ms", pa.float64()),
    ]
)
"""After deliver: what was done, one row per batch."""

WINDOW_ROWS = pa.schema(
    [
        ("subscription", pa.int64()),
        ("gateway", pa.int32()),
        ("form", pa.string()),
        ("created_ms", pa.int64()),
        ("kind", pa.int32()),  # see windows.py
        ("offset", pa.int64()),
        ("partition", pa.int32()),
        ("time_ms", pa.int64()),  # of a change; the watermark of a tick
        ("appended_ms", pa.int64()),
        ("collection", pa.string()),
        ("key", pa.string()),
        ("before", pa.binary()),  # null unless the condition holds for it
        ("after", pa.binary()),
    ]
)
"""What concerns windowed subscriptions, before it is put together by subscription."""

WINDOW_EVENTS = pa.schema(
    [
        ("subscription", pa.int64()),
        ("gateway", pa.int32()),
        ("position", pa.int64()),  # 0 in the row that only counts
        ("payload", pa.binary()),
        ("late", pa.int64()),
    ]
)
"""What window ends tell."""

_SPARK_TYPES = {
    pa.int64(): "bigint",
    pa.int32(): "int",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.bool_(): "boolean",
}


def spark_schema(schema: pa.Schema) -> str:
    """The same columns in the words of Spark."""
    return ", ".join(f"`{field.name}` {_SPARK_TYPES[field.type]}" for field in schema)


def journal_rows_to_batch(
    rows: Sequence[ChangeRow], version: int, newer_than: int, shedding: Collection[int] = ()
) -> pa.RecordBatch:
    """Rows of the journal as columns; `shedding` are the partitions that are behind."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(ChangeRow._fields)
    arrays = [
        pa.array(column, field.type)
        for field, column in zip(list(JOURNAL)[: len(columns)], columns, strict=True)
    ]
    arrays.append(pa.array([version] * len(rows), pa.int64()))
    arrays.append(pa.array([newer_than] * len(rows), pa.int64()))
    arrays.append(pa.array([row.partition in shedding for row in rows], pa.bool_()))
    return pa.RecordBatch.from_arrays(arrays, schema=JOURNAL)

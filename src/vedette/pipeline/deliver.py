"""Stage 6: send deliveries to the gateways' ingest sockets, at least once.

`deliver` sends without waiting (`transport.unaccepted` explains why this is safe). The task waits for acceptance at
the end of its range and above the limit of unaccepted deliveries (`Task.flush`). Changes with a problem are stored in
the journal's quarantine.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from vedette.clock import SystemClock
from vedette.pipeline.task import Task
from vedette.pipeline.worker_cache import journals
from vedette.sources.records import QuarantinedChange
from vedette.transport.ingest_messages import DeliveredChange
from vedette.values import timestamp_to_ms

__all__ = ["deliver"]

_EXCERPT_BYTES = 200
"""Bytes of the image that a quarantined change keeps."""
CHANGE_COLUMNS = (
    "gateway",
    "newer_than",
    "tenant",
    "collection",
    "key",
    "op",
    "partition",
    "epoch",
    "seq",
    "offset",
    "time_ms",
    "before",
    "after",
    "enter",
    "update",
    "leave",
    "unfiltered",
)


def deliver(batch: pa.RecordBatch, task: Task) -> pa.RecordBatch:
    """Send the batch without waiting, and count its matches. Returns the batch unchanged."""
    valid = batch.filter(pc.is_null(batch["problem"]))
    invalid = batch.num_rows - valid.num_rows
    if invalid:
        _quarantine(batch.filter(pc.is_valid(batch["problem"])).to_pylist(), task)
    task.outbox.send(_changes_by_gateway(valid), valid.nbytes)
    counters = task.counters
    counters.matches += sum(len(batch[name].flatten()) for name in ("enter", "update", "leave"))
    counters.quarantined += invalid
    counters.broadcast += batch["unfiltered"].true_count
    return batch


def _changes_by_gateway(batch: pa.RecordBatch) -> dict[int, list[DeliveredChange]]:
    """Convert column by column, because this runs for every change."""
    by_gateway: dict[int, list[DeliveredChange]] = {
        number: [] for number in batch["gateway"].unique().to_pylist()
    }
    columns = (batch[name].to_pylist() for name in CHANGE_COLUMNS)
    # Fields are passed one by one: building a dictionary first takes as long as everything else here.
    for (
        gateway,
        newer_than,
        tenant,
        collection,
        key,
        op,
        partition,
        epoch,
        seq,
        offset,
        time_ms,
        *rest,
    ) in zip(*columns, strict=True):
        before, after, enter, update, leave, unfiltered = rest
        by_gateway[gateway].append(
            DeliveredChange(
                tenant=tenant,
                collection=collection,
                key=key,
                op=op,
                partition=partition,
                epoch=epoch,
                seq=seq,
                offset=offset,
                time_ms=time_ms,
                before=before,
                after=after,
                enter=enter,
                update=update,
                leave=leave,
                is_backfill=newer_than >= 0,
                unfiltered=unfiltered,
            )
        )
    return by_gateway


def _quarantine(rows: Iterable[dict[str, object]], task: Task) -> None:
    journal = journals(task.config.journal_url)
    now = timestamp_to_ms(SystemClock().now())
    for row in rows:
        image = row["after"] or row["before"] or b""
        assert isinstance(image, bytes)
        journal.quarantine(
            QuarantinedChange(
                source=str(row["source"]),
                event_id=str(row["event_id"]),
                reason=str(row["problem"]),
                excerpt=image[:_EXCERPT_BYTES].decode(errors="replace"),
                time_ms=now,
            )
        )

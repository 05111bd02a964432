"""Stage 6: send deliveries to the gateways' ingest sockets, at least once. The batch commits when all are accepted.

`deliver` sends without waiting (`outgoing.py` explains why this is safe); `settle` waits at the end of a share.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from vedette.clock import SystemClock
from vedette.errors import PipelineError
from vedette.pipeline import telemetry
from vedette.pipeline.members import live_gateways
from vedette.pipeline.outgoing import UnacceptedDeliveries, drop_link, link_to
from vedette.pipeline.schema import OUTCOME
from vedette.pipeline.task import PipelineConfig
from vedette.sources.journal.seam import open_journal
from vedette.sources.records import QuarantinedChange
from vedette.transport.ingest_client import IngestClient
from vedette.transport.ingest_messages import Complete, DeliveredChange, WindowResult
from vedette.values import timestamp_to_ms

__all__ = ["abandon", "complete", "deliver", "deliver_windows", "much_is_out", "settle"]

log = logging.getLogger(__name__)
MOST_OUT = 20_000
MOST_BYTES_OUT = 64 * 1024 * 1024
"""Limits of unaccepted deliveries of a task: it keeps them in memory until they are accepted, and so does the
gateway."""
_NAMES = (
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


class _Out:
    """Deliveries of this worker's task since the last `settle`."""

    def __init__(self) -> None:
        self.changes: UnacceptedDeliveries[DeliveredChange] = UnacceptedDeliveries(IngestClient.send_changes)
        self.bytes = 0


_out = _Out()


def deliver(batch: pa.RecordBatch, context: PipelineConfig) -> pa.RecordBatch:
    """Send the batch and count its matches. `settle` reports acceptance."""
    usable = batch.filter(pc.is_null(batch["problem"]))
    poisoned = batch.num_rows - usable.num_rows
    if poisoned:
        _quarantine(batch.filter(pc.is_valid(batch["problem"])).to_pylist(), context)
    _out.changes.send(_by_gateway(usable), context)
    _out.bytes += usable.nbytes
    counts = {
        "matches": sum(len(batch[name].flatten()) for name in ("enter", "update", "leave")),
        "quarantined": poisoned,
        "skipped": 0,
        "broadcast": batch["unfiltered"].true_count,
        **telemetry.take(),
    }
    return pa.RecordBatch.from_pylist([counts], schema=OUTCOME)


def settle(context: PipelineConfig) -> pa.RecordBatch:
    """Wait until all deliveries are accepted, and count them."""
    sent = len(_out.changes)
    lost = _out.changes.flush(context)
    _out.bytes = 0
    return pa.RecordBatch.from_pylist([{"deliveries": sent - lost, "undeliverable": lost}], schema=OUTCOME)


def much_is_out() -> bool:
    """True if the task should wait for acceptance before it sends more."""
    return len(_out.changes) >= MOST_OUT or _out.bytes >= MOST_BYTES_OUT


def abandon() -> None:
    """Start of a task: discard deliveries of a failed task in this worker; its retry sends them again."""
    _out.changes.clear()
    _out.bytes = 0


def complete(frame: Complete, context: PipelineConfig) -> None:
    """Announce to every gateway that a share of the partitions is delivered up to an offset.

    Unreachable gateways are not waited for: the driver informs them (`PartitionStatusPublisher`).
    """
    for gateway in live_gateways(context.registry_url):
        try:
            link_to(gateway.address, context).send(frame)
        except PipelineError as error:
            log.info(
                "The end of a batch could not be sent to a gateway: %s",
                error,
                extra={"action": "complete.untold", "gateway": gateway.name},
            )
            drop_link(gateway.address)


def deliver_windows(by_gateway: Mapping[int, list[WindowResult]], context: PipelineConfig) -> int:
    """Deliver window events and wait for acceptance. Returns the number of events without a gateway."""
    windows: UnacceptedDeliveries[WindowResult] = UnacceptedDeliveries(IngestClient.send_window_events)
    windows.send(by_gateway, context)
    return windows.flush(context)


def _by_gateway(batch: pa.RecordBatch) -> dict[int, list[DeliveredChange]]:
    """Column by column, because this runs for every change."""
    found: dict[int, list[DeliveredChange]] = {number: [] for number in batch["gateway"].unique().to_pylist()}
    columns = (batch[name].to_pylist() for name in ("gateway", "newer_than", *_NAMES))
    # Fields are named one by one: building a dictionary first takes as long as everything else here.
    for gateway, newer, tenant, collection, key, op, place, epoch, seq, offset, at, *rest in zip(
        *columns, strict=True
    ):
        before, after, enter, update, leave, unfiltered = rest
        found[gateway].append(
            DeliveredChange(
                tenant=tenant,
                collection=collection,
                key=key,
                op=op,
                partition=place,
                epoch=epoch,
                seq=seq,
                offset=offset,
                time_ms=at,
                before=before,
                after=after,
                enter=enter,
                update=update,
                leave=leave,
                again=newer >= 0,
                unfiltered=unfiltered,
            )
        )
    return found


def _quarantine(rows: Iterable[dict[str, object]], context: PipelineConfig) -> None:
    journal = open_journal(context.journal_url)
    now = timestamp_to_ms(SystemClock().now())
    for row in rows:
        image = row["after"] or row["before"] or b""
        assert isinstance(image, bytes)
        journal.quarantine(
            QuarantinedChange(
                source=str(row["source"]),
                event_id=str(row["event_id"]),
                reason=str(row["problem"]),
                excerpt=image[:200].decode(errors="replace"),
                time_ms=now,
            )
        )
    journal.close()

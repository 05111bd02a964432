"""Stage 6: deliveries go to the gateways' ingest sockets, at least once; the batch counts when all are accepted.

A gateway that does not answer is tried again while its lease lasts. When the lease is over the gateway is gone: its
clients come back elsewhere and resume or resync there, so nobody waits for it. That it was passed over is entered at
the registry: if it lives after all it finds that it has lost its place, and its subscribers begin anew.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from threading import Event as Flag
from typing import TypeVar

import pyarrow as pa

from vedette.clock import SystemClock
from vedette.errors import PipelineError
from vedette.pipeline import telemetry
from vedette.pipeline.context import PipelineContext
from vedette.pipeline.ingest_frames import Complete, DeliveredChange, WindowTold
from vedette.pipeline.ingest_link import IngestLink, connect
from vedette.pipeline.members import forget_gateways, gateways_of, give_up
from vedette.pipeline.schema import OUTCOME
from vedette.sources.journal import open_journal
from vedette.sources.records import Quarantined
from vedette.values import timestamp_to_ms

__all__ = ["close_links", "complete", "deliver", "deliver_windows"]

log = logging.getLogger(__name__)
T = TypeVar("T")
PAUSE_SECONDS = 0.05
_links: dict[str, IngestLink] = {}
"""Open links of this worker process, by address. They outlive tasks; a worker that dies takes them along."""


def deliver(batch: pa.RecordBatch, context: PipelineContext) -> pa.RecordBatch:
    """Send everything, then wait until everything is accepted."""
    rows = batch.to_pylist()
    poisoned = [row for row in rows if row["problem"] is not None]
    _quarantine(poisoned, context)
    by_gateway: dict[int, list[DeliveredChange]] = {}
    for row in rows:
        if row["problem"] is None:
            by_gateway.setdefault(row["gateway"], []).append(_change(row))
    lost = _deliver_all(by_gateway, IngestLink.deliver, context)
    matches = sum(len(row["enter"]) + len(row["update"]) + len(row["leave"]) for row in rows)
    counts = {
        "deliveries": len(rows) - len(poisoned) - lost,
        "matches": matches,
        "undeliverable": lost,
        "quarantined": len(poisoned),
        "skipped": 0,
        "broadcast": sum(row["unfiltered"] for row in rows),
        **telemetry.take(),
    }
    return pa.RecordBatch.from_pylist([counts], schema=OUTCOME)


def complete(frame: Complete, context: PipelineContext) -> None:
    """Tell every gateway that a share of the partitions is told up to an offset.

    A gateway that cannot be reached is not waited for: it hears it from the driver (`StateTeller`).
    """
    for gateway in gateways_of(context.registry):
        try:
            _link(gateway.address, context).tell(frame)
        except PipelineError as error:
            log.info(
                "A gateway did not hear the end of a batch: %s", error, extra={"action": "complete.untold"}
            )
            _drop(gateway.address)


def close_links() -> None:
    """Let go of all gateways; the next delivery connects anew."""
    for address in list(_links):
        _drop(address)


def _change(row: dict[str, object]) -> DeliveredChange:
    names = (
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
    )
    lists = ("enter", "update", "leave", "unfiltered")
    values = {name: row[name] for name in (*names, *lists)}
    newer_than = row["newer_than"]
    assert isinstance(newer_than, int)
    return DeliveredChange(**values, again=newer_than >= 0)  # type: ignore[arg-type]


def deliver_windows(by_gateway: Mapping[int, list[WindowTold]], context: PipelineContext) -> int:
    """What window ends tell, the same way; returns how many nobody is there to take."""
    return _deliver_all(by_gateway, IngestLink.deliver_windows, context)


def _deliver_all(
    by_gateway: Mapping[int, list[T]], send: Callable[[IngestLink, list[T]], None], context: PipelineContext
) -> int:
    """Returns how many deliveries nobody is there to take."""
    waiting, lost, pause = dict(by_gateway), 0, Flag()
    while waiting:
        addresses = {gateway.number: gateway.address for gateway in gateways_of(context.registry)}
        for number in list(waiting):
            if number not in addresses:
                give_up(context.registry, number)
                lost += len(waiting.pop(number))
        sent = [n for n in waiting if _attempt(addresses[n], send, waiting[n], context)]
        settled = [number for number in sent if _settled(addresses[number])]
        for number in settled:
            del waiting[number]
        if waiting:
            forget_gateways(context.registry)
            pause.wait(PAUSE_SECONDS)
    return lost


def _attempt(
    address: str, send: Callable[[IngestLink, list[T]], None], items: list[T], context: PipelineContext
) -> bool:
    try:
        send(_link(address, context), items)
    except PipelineError:
        _drop(address)
        return False
    return True


def _settled(address: str) -> bool:
    try:
        _links[address].settle()
    except (PipelineError, KeyError):
        _drop(address)
        return False
    return True


def _link(address: str, context: PipelineContext) -> IngestLink:
    link = _links.get(address)
    if link is None:
        link = _links[address] = connect(address, context.secret, f"worker {os.getpid()}")
    return link


def _drop(address: str) -> None:
    link = _links.pop(address, None)
    if link is not None:
        link.close()


def _quarantine(rows: Iterable[dict[str, object]], context: PipelineContext) -> None:
    rows = list(rows)
    if not rows:
        return
    journal = open_journal(context.journal)
    now = timestamp_to_ms(SystemClock().now())
    for row in rows:
        image = row["after"] or row["before"] or b""
        assert isinstance(image, bytes)
        journal.quarantine(
            Quarantined(
                source=str(row["source"]),
                event_id=str(row["event_id"]),
                reason=str(row["problem"]),
                excerpt=image[:200].decode(errors="replace"),
                time_ms=now,
            )
        )
    journal.close()

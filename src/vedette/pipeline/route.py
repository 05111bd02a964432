"""Stage 5: where each delivery goes: straight to the gateways that hold the subscriptions.

While the index is unsure or slow, the first gateways on the ring get the change as well, unfiltered, and hold it
against their own subscriptions (seeds/realtime-watching.md §3; ruling 2).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vedette.pipeline.members import broadcast_fan_out, invalidate_gateways, live_gateways
from vedette.pipeline.schema import DELIVERIES
from vedette.pipeline.task import PipelineConfig
from vedette.transport.hash_ring import HashRing

__all__ = ["route"]


def route(batch: pa.RecordBatch, context: PipelineConfig) -> pa.RecordBatch:
    """Addresses come from the leases as they are now: a gateway that moved is found where it is."""
    gateways = live_gateways(context.registry_url)
    wanted = set(batch["gateway"].to_pylist()) - {-1}
    if not wanted <= {gateway.number for gateway in gateways}:
        invalidate_gateways(context.registry_url)  # one that has just come is not gone
        gateways = live_gateways(context.registry_url)
    addresses = {gateway.number: gateway.address for gateway in gateways}
    places = pc.index_in(batch["gateway"], pa.array(list(addresses), pa.int32()))
    routed = _set_column(batch, "address", pa.array(list(addresses.values()), pa.string()).take(places))
    fan_out = broadcast_fan_out(context.registry_url)
    if not fan_out or (len(addresses) == 1 and wanted <= addresses.keys()):
        return routed  # the only one there is gets everything anyway
    ring = HashRing(gateway.name for gateway in gateways)
    numbers = {gateway.name: gateway.number for gateway in gateways}
    return _add_broadcast_copies(routed, ring, numbers, addresses, fan_out)


def _set_column(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    return batch.set_column(batch.schema.get_field_index(name), DELIVERIES.field(name), column)


def _add_broadcast_copies(
    batch: pa.RecordBatch, ring: HashRing, numbers: dict[str, int], addresses: dict[int, str], fan_out: int
) -> pa.RecordBatch:
    """Copies of each change for the gateways next on the ring that do not get it anyway."""
    keys = list(
        zip(*(batch[name].to_pylist() for name in ("tenant", "collection", "key", "offset")), strict=True)
    )
    directed: dict[int, set[int]] = {}
    for (*_, offset), gateway in zip(keys, batch["gateway"].to_pylist(), strict=True):
        directed.setdefault(offset, set()).add(gateway)
    rows: list[int] = []
    targets: list[int] = []
    told: set[int] = set()
    for row, (tenant, collection, key, offset) in enumerate(keys):
        if offset in told or batch["gateway"][row].as_py() < 0:
            continue
        told.add(offset)
        for name in ring.owners(f"{tenant}\0{collection}\0{key}", fan_out):
            if numbers[name] not in directed[offset]:
                rows.append(row)
                targets.append(numbers[name])
    copies = batch.take(pa.array(np.array(rows, np.int64)))
    nobody: list[list[Any]] = [[] for _ in rows]
    for name in ("enter", "update", "leave"):
        copies = _set_column(copies, name, pa.array(nobody, pa.list_(pa.int64())))
    copies = _set_column(copies, "gateway", pa.array(targets, pa.int32()))
    copies = _set_column(copies, "address", pa.array([addresses[number] for number in targets], pa.string()))
    copies = _set_column(copies, "unfiltered", pa.array([True] * len(rows), pa.bool_()))
    return pa.concat_batches([batch, copies])

"""Stage 5: find the address of each delivery: the gateway that holds the subscriptions.

While the index is unreliable or slow, a change is also sent unfiltered to the first gateways on the hash ring. They
evaluate their own subscriptions of the collection (`control.index_health` decides this).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vedette.pipeline.schema import DELIVERIES
from vedette.pipeline.task import Task
from vedette.transport.hash_ring import HashRing

__all__ = ["route"]


def route(batch: pa.RecordBatch, task: Task) -> pa.RecordBatch:
    """Set `address` from the current leases, so that a gateway that moved is found. Add broadcast copies."""
    gateways = task.gateways.live()
    needed = set(batch["gateway"].to_pylist()) - {-1}
    if not needed <= {gateway.number for gateway in gateways}:
        gateways = task.gateways.live(fresh=True)  # a new gateway is not in the cache yet
    addresses = {gateway.number: gateway.address for gateway in gateways}
    rows = pc.index_in(batch["gateway"], pa.array(list(addresses), pa.int32()))
    routed = _set_column(batch, "address", pa.array(list(addresses.values()), pa.string()).take(rows))
    fan_out = task.gateways.broadcast_fan_out()
    if not fan_out or (len(addresses) == 1 and needed <= addresses.keys()):
        return routed  # a single gateway receives every change that it needs anyway
    ring = HashRing(gateway.name for gateway in gateways)
    numbers = {gateway.name: gateway.number for gateway in gateways}
    return _add_broadcast_copies(routed, ring, numbers, addresses, fan_out)


def _set_column(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    return batch.set_column(batch.schema.get_field_index(name), DELIVERIES.field(name), column)


def _add_broadcast_copies(
    batch: pa.RecordBatch, ring: HashRing, numbers: dict[str, int], addresses: dict[int, str], fan_out: int
) -> pa.RecordBatch:
    """Append an unfiltered copy of each change for the next gateways on the ring that do not receive it already."""
    keys = list(
        zip(*(batch[name].to_pylist() for name in ("tenant", "collection", "key", "offset")), strict=True)
    )
    directed: dict[int, set[int]] = {}
    for (*_, offset), gateway in zip(keys, batch["gateway"].to_pylist(), strict=True):
        directed.setdefault(offset, set()).add(gateway)
    rows: list[int] = []
    targets: list[int] = []
    broadcast_offsets: set[int] = set()
    for row, (tenant, collection, key, offset) in enumerate(keys):
        if offset in broadcast_offsets or batch["gateway"][row].as_py() < 0:
            continue
        broadcast_offsets.add(offset)
        for name in ring.owners(f"{tenant}\0{collection}\0{key}", fan_out):
            if numbers[name] not in directed[offset]:
                rows.append(row)
                targets.append(numbers[name])
    copies = batch.take(pa.array(np.array(rows, np.int64)))
    no_subscriptions: list[list[int]] = [[] for _ in rows]
    for name in ("enter", "update", "leave"):
        copies = _set_column(copies, name, pa.array(no_subscriptions, pa.list_(pa.int64())))
    copies = _set_column(copies, "gateway", pa.array(targets, pa.int32()))
    copies = _set_column(copies, "address", pa.array([addresses[number] for number in targets], pa.string()))
    copies = _set_column(copies, "unfiltered", pa.array([True] * len(rows), pa.bool_()))
    return pa.concat_batches([batch, copies])

"""The driver publishes the state of partitions (stale, catching up, live, new epoch) and the delivered offset to
gateways. Workers announce the offset too at the end of a batch, but do not wait until it is received."""

from __future__ import annotations

from collections.abc import Sequence

from vedette.errors import PipelineError
from vedette.pipeline.task import PipelineConfig
from vedette.sources.records import Partition
from vedette.subscriptions.registry.registry import Gateway
from vedette.transport.ingest_client import IngestClient, open_client
from vedette.transport.ingest_messages import Complete, PartitionStatus, Status

__all__ = ["PartitionStatusPublisher", "changed_statuses"]


def changed_statuses(
    told: dict[int, PartitionStatus], partitions: Sequence[Partition]
) -> list[PartitionStatus]:
    """Statuses that differ from the published ones."""
    current = [
        PartitionStatus(partition=p.id, epoch=p.epoch, state=p.state, reason=p.reason) for p in partitions
    ]
    return [status for status in current if told.get(status.partition) != status]


class PartitionStatusPublisher:
    """One connection per gateway, besides those of the workers. A new gateway receives all statuses."""

    def __init__(self, context: PipelineConfig) -> None:
        self._context = context
        self._links: dict[str, IngestClient] = {}
        self._published: dict[str, dict[int, PartitionStatus]] = {}

    def publish(
        self, partitions: Sequence[Partition], gateways: Sequence[Gateway], reached: Complete | None = None
    ) -> None:
        """`reached`, the end of the last committed batch, is sent every time; this also detects broken connections."""
        there = {gateway.address for gateway in gateways}
        for address in list(self._links):
            if address not in there:
                self._disconnect(address)
        for address in sorted(there):
            fresh = changed_statuses(self._published.setdefault(address, {}), partitions)
            if fresh or reached is not None:
                self._send(address, fresh, reached)

    def close(self) -> None:
        for address in list(self._links):
            self._disconnect(address)

    def _send(self, address: str, fresh: list[PartitionStatus], reached: Complete | None) -> None:
        try:
            if address not in self._links:
                self._links[address] = open_client(address, self._context.ingest_secret, "driver")
            if fresh:
                self._links[address].send(Status(partitions=fresh))
            if reached is not None:
                self._links[address].send(reached)
        except PipelineError:
            self._disconnect(address)  # it receives everything when it is reachable again
            return
        self._published[address].update({status.partition: status for status in fresh})

    def _disconnect(self, address: str) -> None:
        self._published.pop(address, None)
        link = self._links.pop(address, None)
        if link is not None:
            link.close()

"""The driver publishes partition states and the delivered offset to every gateway.

Workers announce the delivered offset too, at the end of each task, but do not wait until it is received. So the driver
repeats it with every status.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vedette.errors import PipelineError
from vedette.sources.records import Partition
from vedette.subscriptions.registry.records import Gateway
from vedette.transport.ingest_client import IngestClient, open_client
from vedette.transport.ingest_messages import Complete, PartitionStatus, Status

__all__ = ["PartitionStatusPublisher", "changed_statuses"]


def changed_statuses(
    published: Mapping[int, PartitionStatus], partitions: Sequence[Partition]
) -> list[PartitionStatus]:
    """Return the statuses that differ from the published ones."""
    current = [
        PartitionStatus(partition=p.id, epoch=p.epoch, state=p.state, reason=p.reason) for p in partitions
    ]
    return [status for status in current if published.get(status.partition) != status]


class PartitionStatusPublisher:
    """One connection per gateway, besides those of the workers. A new gateway receives all statuses.

    Not thread-safe.
    """

    def __init__(self, ingest_secret: str) -> None:
        self._secret = ingest_secret
        self._clients: dict[str, IngestClient] = {}
        self._published: dict[str, dict[int, PartitionStatus]] = {}
        """Gateway address to the statuses that were sent over its open connection, by partition."""

    def publish(
        self, partitions: Sequence[Partition], gateways: Sequence[Gateway], delivered: Complete | None = None
    ) -> None:
        """Send changed statuses, and `delivered`, the end of the last committed batch.

        `delivered` is sent every time, which also detects broken connections.
        """
        live = {gateway.address for gateway in gateways}
        for address in list(self._clients):
            if address not in live:
                self._disconnect(address)
        for address in sorted(live):
            changed = changed_statuses(self._published.setdefault(address, {}), partitions)
            if changed or delivered is not None:
                self._send(address, changed, delivered)

    def close(self) -> None:
        for address in list(self._clients):
            self._disconnect(address)

    def _send(self, address: str, changed: list[PartitionStatus], delivered: Complete | None) -> None:
        try:
            if address not in self._clients:
                self._clients[address] = open_client(address, self._secret, "driver")
            if changed:
                self._clients[address].send(Status(partitions=changed))
            if delivered is not None:
                self._clients[address].send(delivered)
        except PipelineError:
            self._disconnect(address)  # the gateway receives everything again once it is reachable
            return
        self._published[address].update({status.partition: status for status in changed})

    def _disconnect(self, address: str) -> None:
        self._published.pop(address, None)
        client = self._clients.pop(address, None)
        if client is not None:
            client.close()

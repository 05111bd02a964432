"""The driver tells gateways what becomes of partitions (stale, catching up, live again, in a new epoch), and how far
everything is told: workers say so, too, at the end of a batch, but nobody waits until they were heard.
"""

from __future__ import annotations

from collections.abc import Sequence

from vedette.errors import PipelineError
from vedette.pipeline.task import PipelineContext
from vedette.sources.records import Partition
from vedette.subscriptions.registry.registry import Gateway
from vedette.transport.ingest_client import IngestLink, connect
from vedette.transport.ingest_messages import Complete, PartitionStatus, Status

__all__ = ["StateTeller", "news"]


def news(told: dict[int, PartitionStatus], partitions: Sequence[Partition]) -> list[PartitionStatus]:
    """What somebody who was told so much does not know yet."""
    current = [
        PartitionStatus(partition=p.id, epoch=p.epoch, state=p.state, reason=p.reason) for p in partitions
    ]
    return [status for status in current if told.get(status.partition) != status]


class StateTeller:
    """One link to each gateway, beside those of the workers. A gateway that comes is told everything."""

    def __init__(self, context: PipelineContext) -> None:
        self._context = context
        self._links: dict[str, IngestLink] = {}
        self._told: dict[str, dict[int, PartitionStatus]] = {}

    def tell(
        self, partitions: Sequence[Partition], gateways: Sequence[Gateway], reached: Complete | None = None
    ) -> None:
        """`reached`, the last batch that is committed, is told every time: that also shows whether a link holds."""
        there = {gateway.address for gateway in gateways}
        for address in list(self._links):
            if address not in there:
                self._drop(address)
        for address in sorted(there):
            fresh = news(self._told.setdefault(address, {}), partitions)
            if fresh or reached is not None:
                self._send(address, fresh, reached)

    def close(self) -> None:
        for address in list(self._links):
            self._drop(address)

    def _send(self, address: str, fresh: list[PartitionStatus], reached: Complete | None) -> None:
        try:
            if address not in self._links:
                self._links[address] = connect(address, self._context.secret, "driver")
            if fresh:
                self._links[address].tell(Status(partitions=fresh))
            if reached is not None:
                self._links[address].tell(reached)
        except PipelineError:
            self._drop(address)  # it is told all of it when it is there again
            return
        self._told[address].update({status.partition: status for status in fresh})

    def _drop(self, address: str) -> None:
        self._told.pop(address, None)
        link = self._links.pop(address, None)
        if link is not None:
            link.close()

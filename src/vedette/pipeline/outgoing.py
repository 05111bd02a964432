"""Deliveries of a task to gateways: sent in pieces without waiting, until `flush`.

Theory of operation. A share of a batch is matched in pieces, and each piece is sent immediately, so gateways process
it while the next one is matched. At the end of the share, or above the limit of unaccepted deliveries, the task waits
for acceptance.

Unaccepted deliveries are kept. If a connection fails, nothing more is sent to its gateway until `flush` resends
everything kept, from the first on: a gateway treats a sequence number that is not above the last one of a partition
as a duplicate, so a later piece must never overtake a lost one. For the same reason all kept deliveries of a gateway
use one connection. Gateways drop duplicates.

An unresponsive gateway is retried while its lease lasts. After that it counts as gone: its clients reconnect
elsewhere and resume or resync. The loss is recorded in the registry, so that a gateway that is alive after all knows
that it lost its lease and resets its subscribers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from threading import Event as Flag
from typing import Generic, TypeVar

from vedette.errors import PipelineError
from vedette.pipeline.members import evict_gateway, invalidate_gateways, live_gateways
from vedette.pipeline.task import PipelineConfig
from vedette.transport.ingest_client import IngestClient, open_client

__all__ = ["UnacceptedDeliveries", "close_links", "drop_link", "link_to"]

T = TypeVar("T")
RETRY_SECONDS = 0.05
_links: dict[str, IngestClient] = {}
"""Open connections of this worker process, by address. They outlive tasks."""


def link_to(address: str, context: PipelineConfig) -> IngestClient:
    """Return the open connection or a new one. Raises PipelineError E6301 if it cannot connect."""
    link = _links.get(address)
    if link is None:
        link = _links[address] = open_client(address, context.ingest_secret, f"worker {os.getpid()}")
    return link


def drop_link(address: str) -> None:
    link = _links.pop(address, None)
    if link is not None:
        link.close()


def close_links() -> None:
    """Close all connections; the next delivery reconnects."""
    for address in list(_links):
        drop_link(address)


class UnacceptedDeliveries(Generic[T]):
    """Unaccepted deliveries of the current task."""

    def __init__(self, send: Callable[[IngestClient, Sequence[T]], None]) -> None:
        self._send = send
        self._unaccepted: dict[int, list[T]] = {}
        """Gateway to its unaccepted deliveries, in order."""
        self._clients: dict[int, tuple[str, IngestClient]] = {}
        """Gateway to the connection that all of them used; absent after a failure."""

    def __len__(self) -> int:
        return sum(map(len, self._unaccepted.values()))

    def clear(self) -> None:
        """Discard the deliveries of a failed task; its retry sends them again."""
        self._unaccepted.clear()
        self._clients.clear()

    def send(self, by_gateway: Mapping[int, list[T]], context: PipelineConfig) -> None:
        addresses = _addresses(context)
        for number, items in by_gateway.items():
            kept = self._unaccepted.setdefault(number, [])
            way = self._clients.get(number)
            if way is not None:
                self._try_send(number, way[0], items, context)
            elif not kept and number in addresses:
                self._try_send(number, addresses[number], items, context)
            kept.extend(items)

    def flush(self, context: PipelineConfig) -> int:
        """Wait until everything is accepted. Returns the number of deliveries without a gateway."""
        lost, pause = 0, Flag()
        while True:
            for number, (address, link) in list(self._clients.items()):
                del self._clients[number]
                if _wait_for(address, link):
                    del self._unaccepted[number]
            if not self._unaccepted:
                return lost
            invalidate_gateways(context.registry_url)
            addresses = _addresses(context)
            for number, items in list(self._unaccepted.items()):
                if number in addresses:
                    self._try_send(number, addresses[number], items, context)
                else:
                    evict_gateway(context.registry_url, number)
                    lost += len(self._unaccepted.pop(number))
            if self._unaccepted.keys() != self._clients.keys():
                pause.wait(RETRY_SECONDS)

    def _try_send(self, number: int, address: str, items: Sequence[T], context: PipelineConfig) -> None:
        way = self._clients.pop(number, None)
        try:
            link = link_to(address, context)
            if way is not None and way[1] is not link:
                return  # the connection that the others used was closed
            self._send(link, items)
        except PipelineError:
            drop_link(address)
            return
        self._clients[number] = (address, link)


def _addresses(context: PipelineConfig) -> dict[int, str]:
    return {gateway.number: gateway.address for gateway in live_gateways(context.registry_url)}


def _wait_for(address: str, link: IngestClient) -> bool:
    try:
        link.wait_until_accepted()
    except PipelineError:
        drop_link(address)
        return False
    return True

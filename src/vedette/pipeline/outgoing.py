"""What a task sends to gateways: piece by piece, without waiting, until `settle`.

Theory of operation. A share of a batch is matched in pieces, and each is sent as soon as it is there: gateways work on
it while the next one is matched. At the end of the share, or when much is out, the task waits until all is accepted.

What was sent and not accepted is kept. When a link fails, nothing more goes to its gateway until `settle` sends all
that is kept again, from the first on: a gateway takes whatever is not past the last number of a partition for a repeat,
so a later piece must never overtake one that was lost. For the same reason all that is kept for a gateway goes over
one link; repeats are the gateway's business.

A gateway that does not answer is tried again while its lease lasts. When the lease is over the gateway is gone: its
clients come back elsewhere and resume or resync there, so nobody waits for it. That it was passed over is entered at
the registry: if it lives after all it finds that it has lost its place, and its subscribers begin anew.
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
"""Open links of this worker process, by address. They outlive tasks; a worker that dies takes them along."""


def link_to(address: str, context: PipelineConfig) -> IngestClient:
    """The open link, or a new one; PipelineError E6301 when there is none to be had."""
    link = _links.get(address)
    if link is None:
        link = _links[address] = open_client(address, context.ingest_secret, f"worker {os.getpid()}")
    return link


def drop_link(address: str) -> None:
    link = _links.pop(address, None)
    if link is not None:
        link.close()


def close_links() -> None:
    """Let go of all gateways; the next delivery connects anew."""
    for address in list(_links):
        drop_link(address)


class UnacceptedDeliveries(Generic[T]):
    """Of one task at a time."""

    def __init__(self, send: Callable[[IngestClient, Sequence[T]], None]) -> None:
        self._send = send
        self._unaccepted: dict[int, list[T]] = {}
        """Gateway ▸ what it has not accepted yet, in order."""
        self._clients: dict[int, tuple[str, IngestClient]] = {}
        """Gateway ▸ the link that all of it went over; none where something went wrong."""

    def __len__(self) -> int:
        return sum(map(len, self._unaccepted.values()))

    def clear(self) -> None:
        """What a task that failed has left is sent by the one that does its work again."""
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
        """Wait until everything is accepted; returns how many deliveries nobody is there to take."""
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
                return  # somebody let go of the link that the rest went over
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

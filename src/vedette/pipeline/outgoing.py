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
from vedette.pipeline.members import forget_gateways, gateways_of, give_up
from vedette.pipeline.task import PipelineContext
from vedette.transport.ingest_client import IngestLink, connect

__all__ = ["Outgoing", "close_links", "drop_link", "link_to"]

T = TypeVar("T")
PAUSE_SECONDS = 0.05
_links: dict[str, IngestLink] = {}
"""Open links of this worker process, by address. They outlive tasks; a worker that dies takes them along."""


def link_to(address: str, context: PipelineContext) -> IngestLink:
    """The open link, or a new one; PipelineError E6301 when there is none to be had."""
    link = _links.get(address)
    if link is None:
        link = _links[address] = connect(address, context.secret, f"worker {os.getpid()}")
    return link


def drop_link(address: str) -> None:
    link = _links.pop(address, None)
    if link is not None:
        link.close()


def close_links() -> None:
    """Let go of all gateways; the next delivery connects anew."""
    for address in list(_links):
        drop_link(address)


class Outgoing(Generic[T]):
    """Of one task at a time."""

    def __init__(self, send: Callable[[IngestLink, Sequence[T]], None]) -> None:
        self._send = send
        self._kept: dict[int, list[T]] = {}
        """Gateway ▸ what it has not accepted yet, in order."""
        self._ways: dict[int, tuple[str, IngestLink]] = {}
        """Gateway ▸ the link that all of it went over; none where something went wrong."""

    def __len__(self) -> int:
        return sum(map(len, self._kept.values()))

    def clear(self) -> None:
        """What a task that failed has left is sent by the one that does its work again."""
        self._kept.clear()
        self._ways.clear()

    def send(self, by_gateway: Mapping[int, list[T]], context: PipelineContext) -> None:
        addresses = _addresses(context)
        for number, items in by_gateway.items():
            kept = self._kept.setdefault(number, [])
            way = self._ways.get(number)
            if way is not None:
                self._attempt(number, way[0], items, context)
            elif not kept and number in addresses:
                self._attempt(number, addresses[number], items, context)
            kept.extend(items)

    def settle(self, context: PipelineContext) -> int:
        """Wait until everything is accepted; returns how many deliveries nobody is there to take."""
        lost, pause = 0, Flag()
        while True:
            for number, (address, link) in list(self._ways.items()):
                del self._ways[number]
                if _is_settled(address, link):
                    del self._kept[number]
            if not self._kept:
                return lost
            forget_gateways(context.registry)
            addresses = _addresses(context)
            for number, items in list(self._kept.items()):
                if number in addresses:
                    self._attempt(number, addresses[number], items, context)
                else:
                    give_up(context.registry, number)
                    lost += len(self._kept.pop(number))
            if self._kept.keys() != self._ways.keys():
                pause.wait(PAUSE_SECONDS)

    def _attempt(self, number: int, address: str, items: Sequence[T], context: PipelineContext) -> None:
        way = self._ways.pop(number, None)
        try:
            link = link_to(address, context)
            if way is not None and way[1] is not link:
                return  # somebody let go of the link that the rest went over
            self._send(link, items)
        except PipelineError:
            drop_link(address)
            return
        self._ways[number] = (address, link)


def _addresses(context: PipelineContext) -> dict[int, str]:
    return {gateway.number: gateway.address for gateway in gateways_of(context.registry)}


def _is_settled(address: str, link: IngestLink) -> bool:
    try:
        link.settle()
    except PipelineError:
        drop_link(address)
        return False
    return True

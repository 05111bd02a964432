"""Changes on their way to gateways: sent without waiting, kept until accepted, resent in order.

Theory of operation. A task matches its range in pieces and sends each piece at once, so that gateways process a piece
while the next one is matched. Everything sent is kept until the gateway accepts it.

    connected ── a send fails ──▶ broken ── flush: reconnect, resend all ──▶ connected
    broken    ── the lease expired ──▶ evicted: its deliveries are counted as undeliverable

The order matters: a gateway treats a sequence number at or below the last one of a partition as a duplicate. So
nothing newer is sent to a broken gateway, and all unaccepted deliveries of a gateway use one connection.

`flush` retries a broken gateway while its lease lasts. After that the gateway counts as gone: its clients reconnect to
another gateway and resume or resync. The eviction is recorded in the registry, so that a gateway that is still alive
learns that it lost its lease, and resets its subscribers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Event as Flag
from typing import Generic, Protocol, TypeAlias, TypeVar

from vedette.errors import PipelineError
from vedette.transport.ingest_client import IngestClient

__all__ = [
    "MAX_UNACCEPTED_BYTES",
    "MAX_UNACCEPTED_CHANGES",
    "ClientPool",
    "Gateways",
    "UnacceptedDeliveries",
]

Item = TypeVar("Item")
SendItems: TypeAlias = Callable[[IngestClient, Sequence[Item]], None]
MAX_UNACCEPTED_CHANGES = 20_000
MAX_UNACCEPTED_BYTES = 64 * 1024 * 1024
"""High-water marks. A task that reaches one flushes before it matches more: the task and the gateway both keep
unaccepted deliveries in memory."""
RETRY_SECONDS = 0.05
"""Pause between two attempts to reach a gateway whose lease has not expired."""


class Gateways(Protocol):
    """The gateways with a live lease."""

    def addresses(self, *, fresh: bool = False) -> Mapping[int, str]:
        """Map gateway numbers to addresses. `fresh` bypasses the cache."""
        ...

    def evict(self, number: int) -> None:
        """End the lease of a gateway that missed deliveries."""
        ...


class ClientPool(Protocol):
    """Open connections by address."""

    def get(self, address: str) -> IngestClient:
        """Return the open connection or a new one. Raise PipelineError E6301 if it cannot connect."""
        ...

    def discard(self, address: str) -> None:
        """Close a broken connection. The next `get` reconnects."""
        ...


class UnacceptedDeliveries(Generic[Item]):
    """The unaccepted deliveries of one task attempt. Not thread-safe."""

    def __init__(self, gateways: Gateways, pool: ClientPool, send: SendItems[Item]) -> None:
        """`send` writes items to a connection, in order, without waiting for acceptance."""
        self._gateways, self._pool, self._send_items = gateways, pool, send
        self._unaccepted: dict[int, list[Item]] = {}
        """Gateway number to its unaccepted deliveries, in order."""
        self._connected: dict[int, tuple[str, IngestClient]] = {}
        """Gateway number to the connection that carried all of them; absent if the gateway is broken."""
        self._bytes = 0

    def __len__(self) -> int:
        """Return the number of deliveries that are not accepted yet."""
        return sum(map(len, self._unaccepted.values()))

    @property
    def is_full(self) -> bool:
        """True if a high-water mark is reached."""
        return self._bytes >= MAX_UNACCEPTED_BYTES or len(self) >= MAX_UNACCEPTED_CHANGES

    def send(self, by_gateway: Mapping[int, Sequence[Item]], size_bytes: int = 0) -> None:
        """Send to every connected gateway, without waiting. A failure marks the gateway as broken; nothing is lost."""
        addresses = self._gateways.addresses()
        self._bytes += size_bytes
        for number, items in by_gateway.items():
            unaccepted = self._unaccepted.setdefault(number, [])
            connected = self._connected.get(number)
            if connected is not None:
                self._try_send(number, connected[0], items)
            elif not unaccepted and number in addresses:
                self._try_send(number, addresses[number], items)
            unaccepted.extend(items)

    def flush(self) -> int:
        """Wait until every live gateway has accepted everything. Return the number of undeliverable items."""
        undeliverable, pause = 0, Flag()
        while True:
            for number, (address, client) in list(self._connected.items()):
                del self._connected[number]
                if self._wait_for(address, client):
                    del self._unaccepted[number]
            if not self._unaccepted:
                self._bytes = 0
                return undeliverable
            addresses = self._gateways.addresses(fresh=True)
            for number, items in list(self._unaccepted.items()):
                if number in addresses:
                    self._try_send(number, addresses[number], items)
                else:
                    self._gateways.evict(number)
                    undeliverable += len(self._unaccepted.pop(number))
            if self._unaccepted.keys() != self._connected.keys():
                pause.wait(RETRY_SECONDS)

    def _try_send(self, number: int, address: str, items: Sequence[Item]) -> None:
        """Send over the gateway's connection. After a failure the gateway is broken: absent from `_connected`."""
        connected = self._connected.pop(number, None)
        try:
            client = self._pool.get(address)
            if connected is not None and connected[1] is not client:
                return  # the connection that carried the earlier items was closed: `flush` resends all of them
            self._send_items(client, items)
        except PipelineError:
            self._pool.discard(address)
            return
        self._connected[number] = (address, client)

    def _wait_for(self, address: str, client: IngestClient) -> bool:
        try:
            client.wait_until_accepted()
        except PipelineError:
            self._pool.discard(address)
            return False
        return True

"""Listens for clients and runs the timers of all connections: heartbeats, token expiry, stalled clients.

`websocket.py` handles each socket. The server tracks all of them and the sum of their outbox bytes.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import ssl
from contextlib import suppress
from heapq import heapify, heappop, heappush
from pathlib import Path

from vedette.clock import Clock
from vedette.gateway.server.access import require_auth_or_loopback
from vedette.gateway.server.auth import LoopbackAuthenticator
from vedette.gateway.server.router import ConnectionRouter
from vedette.gateway.server.websocket import WebSocketConnection
from vedette.gateway.wire import broker_link as link
from vedette.transport.unix_socket import remove_stale_socket, restrict_to_owner

__all__ = ["GatewayServer", "max_sockets"]

log = logging.getLogger(__name__)
_BUCKETS = 16
"""Heartbeats are spread: each part of the interval serves a part of the connections."""
_MEASURE_SECONDS = 0.1
_OTHER_DESCRIPTORS = 2_048
"""File descriptors reserved for stores, links and HTTP."""
_EXPIRY_SLACK = 1_000


def max_sockets(connections: int) -> int:
    """Return the socket limit: all connections plus some that have not finished the handshake, within RLIMIT_NOFILE."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = connections + max(64, connections // 10)
    return count if allowed == resource.RLIM_INFINITY else max(64, min(count, allowed - _OTHER_DESCRIPTORS))


class GatewayServer:
    """Listens for clients and runs the timers of all connections."""

    def __init__(
        self,
        router: ConnectionRouter,
        *,
        clock: Clock,
        allowed_origins: tuple[str, ...] = (),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.router = router
        self.clock = clock
        self.allowed_origins = allowed_origins
        self.requires_auth = not isinstance(router.authority, LoopbackAuthenticator)
        self.tls = tls
        self.max_sockets = max_sockets(router.limits.max_connections)
        self.connections: set[WebSocketConnection] = set()
        self.empty = asyncio.Event()
        """Set when there are no connections."""
        self.with_deadline: set[WebSocketConnection] = set()
        """Connections with a deadline: authentication, closing, or reading their outbox."""
        self._buckets: list[set[WebSocketConnection]] = [set() for _ in range(_BUCKETS)]
        self._expiring: dict[WebSocketConnection, float] = {}
        """Expiry time of each connection's token. `_expiries` is a heap of the same, with some outdated entries."""
        self._expiries: list[tuple[float, int, WebSocketConnection]] = []
        self._sequence = 0
        self.outbox_bytes = 0
        """Outbox bytes of all clients."""
        self.partial_message_bytes = 0
        """Bytes of incomplete messages of all clients."""
        self._servers: list[asyncio.AbstractServer] = []
        self._backlog: set[WebSocketConnection] = set()
        self._written: set[WebSocketConnection] = set()
        self._measuring = False
        self._round = 0
        self._timers: list[asyncio.Task[None]] = []
        self._draining = False
        self.engine_unreachable = False
        """True while the engine cannot be reached; new connections are then rejected."""

    async def start(self, host: str, port: int, *, reuse_port: bool = False) -> int:
        """Listen on a port (0 selects a free one) and return it."""
        require_auth_or_loopback(host, requires_auth=self.requires_auth)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: WebSocketConnection(self),
            host,
            port,
            reuse_port=reuse_port,
            ssl=self.tls,
            ssl_handshake_timeout=self.router.limits.auth_seconds if self.tls is not None else None,
            backlog=4096,
        )
        self._servers.append(server)
        self._start_timers()
        return int(server.sockets[0].getsockname()[1])

    async def start_local(self, path: Path) -> None:
        """Listen on a Unix socket as well, for programs of the same user on this machine."""
        remove_stale_socket(path)
        loop = asyncio.get_running_loop()
        self._servers.append(await loop.create_unix_server(lambda: WebSocketConnection(self), str(path)))
        restrict_to_owner(path)
        self._start_timers()

    def _start_timers(self) -> None:
        if not self._timers:
            loop = asyncio.get_running_loop()
            self._timers = [loop.create_task(self._run_timers()), loop.create_task(self._measure_often())]

    async def stop(self, *, drain_seconds: float = 5.0) -> None:
        """Ask every client to reconnect elsewhere, wait up to `drain_seconds`, then abort the rest."""
        self._draining = True
        for server in self._servers:
            server.close()
        self.router.drain()
        if self.connections:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.empty.wait(), drain_seconds)
        for timer in self._timers:
            timer.cancel()
        for connection in list(self.connections):
            connection.abort()
        await asyncio.sleep(0)

    # --- timers -------------------------------------------------------------------------------------------------

    async def _run_timers(self) -> None:
        """Check deadlines twice a second, and send heartbeats to a part of the connections in each part of the
        interval.
        """
        part = self.router.limits.heartbeat_seconds / _BUCKETS
        due = self.clock.monotonic()
        while True:
            await asyncio.sleep(min(part, 0.5))
            try:
                self._check()
                while self.clock.monotonic() >= due:
                    due += part
                    self._round += 1
                    for connection in list(self._buckets[self._round % _BUCKETS]):
                        connection.send_heartbeat()
            except Exception:
                log.exception("A round of heartbeats failed", extra={"action": "gateway.beat_failed"})

    def _check(self) -> None:
        now, moment = self.clock.monotonic(), self.clock.now()
        for connection in list(self.with_deadline):
            connection.check(now)
        while self._expiries and self._expiries[0][0] <= moment.timestamp():
            at, _, connection = heappop(self._expiries)
            if self._expiring.get(connection) == at:
                del self._expiring[connection]
                connection.expire(moment)

    def add(self, connection: WebSocketConnection) -> None:
        if len(self.connections) >= self.max_sockets:
            connection.abort()  # no capacity even for a refusal
            return
        self._sequence += 1
        self.connections.add(connection)
        self.empty.clear()
        self.with_deadline.add(connection)
        connection.bucket = self._sequence % _BUCKETS
        self._buckets[connection.bucket].add(connection)

    def schedule_expiry(self, connection: WebSocketConnection, at: float) -> None:
        """Check the connection again when its token expires. A newer token replaces the earlier time."""
        self._sequence += 1
        self._expiring[connection] = at
        heappush(self._expiries, (at, self._sequence, connection))
        # otherwise entries would keep closed connections alive
        if len(self._expiries) > 2 * len(self._expiring) + _EXPIRY_SLACK:
            self._expiries = [each for each in self._expiries if self._expiring.get(each[2]) == each[0]]
            heapify(self._expiries)

    async def _measure_often(self) -> None:
        while True:
            await asyncio.sleep(_MEASURE_SECONDS)
            self._written |= self._backlog
            self._measure()

    def mark_written(self, connection: WebSocketConnection) -> None:
        """Note that bytes were passed to a transport, and measure its backlog at the end of this loop iteration."""
        self._written.add(connection)
        if not self._measuring:
            self._measuring = True
            asyncio.get_running_loop().call_soon(self._measure)

    def _measure(self) -> None:
        self._measuring = False
        for connection in self._written:
            size = connection.buffered()
            self.outbox_bytes += size - connection.waiting
            connection.waiting = size
            if size:
                self._backlog.add(connection)
            else:
                self._backlog.discard(connection)
        self._written.clear()
        self.router.load_monitor.measure(self.outbox_bytes + self.router.in_process_outbox_bytes)

    def remove(self, connection: WebSocketConnection) -> None:
        self.connections.discard(connection)
        self.with_deadline.discard(connection)
        self._expiring.pop(connection, None)
        self._buckets[connection.bucket].discard(connection)
        if not self.connections:
            self.empty.set()
        self._backlog.discard(connection)
        self._written.discard(connection)
        self.outbox_bytes -= connection.waiting
        connection.waiting = 0

    def stats(self) -> link.GatewayStats:
        """Return the gateway's statistics for `/metrics`."""
        router = self.router
        return link.GatewayStats(
            connections=len(router.connections),
            subscriptions=router.subscriptions,
            outbox_bytes=self.outbox_bytes + router.in_process_outbox_bytes,
            outbox_limit_bytes=router.limits.gateway_outbox_bytes,
            load=int(router.load_monitor.load),
            counters=router.counters,
        )

    @property
    def is_refusing(self) -> bool:
        return self._draining or self.engine_unreachable or self.router.full

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
from vedette.transport.unix_socket import close_to_others, remove_stale_socket

__all__ = ["GatewayServer", "most_sockets"]

log = logging.getLogger(__name__)
_BUCKETS = 16
"""Heartbeats are spread: each part of the interval serves a part of the connections."""
_MEASURE_SECONDS = 0.1
_OTHER_DESCRIPTORS = 2_048
"""File descriptors reserved for stores, links and HTTP."""
_FEW = 1_000


def most_sockets(connections: int) -> int:
    """Return the socket limit: all connections plus some that have not finished the handshake, within RLIMIT_NOFILE."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + max(64, connections // 10)
    return wanted if allowed == resource.RLIM_INFINITY else max(64, min(wanted, allowed - _OTHER_DESCRIPTORS))


class GatewayServer:
    """Listens for clients and runs the timers of all connections."""

    def __init__(
        self,
        board: ConnectionRouter,
        *,
        clock: Clock,
        allowed_origins: tuple[str, ...] = (),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.board = board
        self.clock = clock
        self.allowed_origins = allowed_origins
        self.requires_auth = not isinstance(board.authority, LoopbackAuthenticator)
        self.tls = tls
        self.most_sockets = most_sockets(board.limits.max_connections)
        self.shells: set[WebSocketConnection] = set()
        self.empty = asyncio.Event()
        """Set when there are no connections."""
        self.with_deadline: set[WebSocketConnection] = set()
        """Connections with a deadline: authentication, closing, or reading their outbox."""
        self._buckets: list[set[WebSocketConnection]] = [set() for _ in range(_BUCKETS)]
        self._expiring: dict[WebSocketConnection, float] = {}
        """Expiry time of each connection's token. `_expiries` is a heap of the same, with some outdated entries."""
        self._expiries: list[tuple[float, int, WebSocketConnection]] = []
        self._arrivals = 0
        self.waiting_bytes = 0
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
        require_auth_or_loopback(host, guarded=self.requires_auth)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: WebSocketConnection(self),
            host,
            port,
            reuse_port=reuse_port,
            ssl=self.tls,
            ssl_handshake_timeout=self.board.limits.auth_seconds if self.tls is not None else None,
            backlog=4096,
        )
        self._servers.append(server)
        self._keep_time()
        return int(server.sockets[0].getsockname()[1])

    async def start_local(self, path: Path) -> None:
        """Listen on a Unix socket as well, for programs of the same user on this machine."""
        remove_stale_socket(path)
        loop = asyncio.get_running_loop()
        self._servers.append(await loop.create_unix_server(lambda: WebSocketConnection(self), str(path)))
        close_to_others(path)
        self._keep_time()

    def _keep_time(self) -> None:
        if not self._timers:
            loop = asyncio.get_running_loop()
            self._timers = [loop.create_task(self._beat()), loop.create_task(self._measure_often())]

    async def stop(self, *, drain_seconds: float = 5.0) -> None:
        """Ask every client to reconnect elsewhere, wait up to `drain_seconds`, then abort the rest."""
        self._draining = True
        for server in self._servers:
            server.close()
        self.board.drain()
        if self.shells:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.empty.wait(), drain_seconds)
        for timer in self._timers:
            timer.cancel()
        for shell in list(self.shells):
            shell.abort()
        await asyncio.sleep(0)

    # --- timers -------------------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        """Check deadlines twice a second, and send heartbeats to a part of the connections in each part of the
        interval.
        """
        part = self.board.limits.heartbeat_seconds / _BUCKETS
        due = self.clock.monotonic()
        while True:
            await asyncio.sleep(min(part, 0.5))
            try:
                self._check()
                while self.clock.monotonic() >= due:
                    due += part
                    self._round += 1
                    for shell in list(self._buckets[self._round % _BUCKETS]):
                        shell.beat()
            except Exception:
                log.exception("A round of heartbeats failed", extra={"action": "gateway.beat_failed"})

    def _check(self) -> None:
        now, moment = self.clock.monotonic(), self.clock.now()
        for shell in list(self.with_deadline):
            shell.check(now)
        while self._expiries and self._expiries[0][0] <= moment.timestamp():
            at, _, shell = heappop(self._expiries)
            if self._expiring.get(shell) == at:
                del self._expiring[shell]
                shell.expire(moment)

    def add(self, shell: WebSocketConnection) -> None:
        if len(self.shells) >= self.most_sockets:
            shell.abort()  # no capacity even for a refusal
            return
        self._arrivals += 1
        self.shells.add(shell)
        self.empty.clear()
        self.with_deadline.add(shell)
        shell.bucket = self._arrivals % _BUCKETS
        self._buckets[shell.bucket].add(shell)

    def schedule_expiry(self, shell: WebSocketConnection, at: float) -> None:
        """Check the connection again when its token expires. A newer token replaces the earlier time."""
        self._arrivals += 1
        self._expiring[shell] = at
        heappush(self._expiries, (at, self._arrivals, shell))
        # otherwise entries would keep closed connections alive
        if len(self._expiries) > 2 * len(self._expiring) + _FEW:
            self._expiries = [each for each in self._expiries if self._expiring.get(each[2]) == each[0]]
            heapify(self._expiries)

    async def _measure_often(self) -> None:
        while True:
            await asyncio.sleep(_MEASURE_SECONDS)
            self._written |= self._backlog
            self._measure()

    def wrote(self, shell: WebSocketConnection) -> None:
        """Note that bytes were passed to a transport, and measure its backlog at the end of this loop iteration."""
        self._written.add(shell)
        if not self._measuring:
            self._measuring = True
            asyncio.get_running_loop().call_soon(self._measure)

    def _measure(self) -> None:
        self._measuring = False
        for shell in self._written:
            size = shell.buffered()
            self.waiting_bytes += size - shell.waiting
            shell.waiting = size
            if size:
                self._backlog.add(shell)
            else:
                self._backlog.discard(shell)
        self._written.clear()
        self.board.watermarks.measure(self.waiting_bytes + self.board.in_process_outbox_bytes)

    def remove(self, shell: WebSocketConnection) -> None:
        self.shells.discard(shell)
        self.with_deadline.discard(shell)
        self._expiring.pop(shell, None)
        self._buckets[shell.bucket].discard(shell)
        if not self.shells:
            self.empty.set()
        self._backlog.discard(shell)
        self._written.discard(shell)
        self.waiting_bytes -= shell.waiting
        shell.waiting = 0

    def figures(self) -> link.GatewayStats:
        """Return the gateway's statistics for `/metrics`."""
        board = self.board
        return link.GatewayStats(
            connections=len(board.connections),
            subscriptions=board.subscriptions,
            outbox_bytes=self.waiting_bytes + board.in_process_outbox_bytes,
            outbox_limit_bytes=board.limits.gateway_outbox_bytes,
            load=int(board.watermarks.load),
            tally=board.counters,
        )

    @property
    def is_refusing(self) -> bool:
        return self._draining or self.engine_unreachable or self.board.full

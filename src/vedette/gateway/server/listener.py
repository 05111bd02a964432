"""Listens for clients on TCP, TLS and Unix sockets, and drains them when the server stops. Event loop only.

`websocket.py` handles each socket, `sockets.py` keeps track of all of them.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from pathlib import Path

from vedette.clock import Clock
from vedette.gateway.server.access import require_auth_or_loopback
from vedette.gateway.server.router import ConnectionRouter
from vedette.gateway.server.sockets import SocketSet
from vedette.gateway.server.websocket import WebSocketConnection
from vedette.gateway.wire import broker_link as link
from vedette.transport.unix_socket import remove_stale_socket, restrict_to_owner

__all__ = ["GatewayServer"]


class GatewayServer:
    """Listens for clients of one router."""

    def __init__(
        self,
        router: ConnectionRouter,
        *,
        clock: Clock,
        allowed_origins: tuple[str, ...] = (),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.router = router
        self.sockets = SocketSet(
            router, clock=clock, allowed_origins=allowed_origins, uses_tls=tls is not None
        )
        self._tls = tls
        self._servers: list[asyncio.AbstractServer] = []
        self._timer_tasks: list[asyncio.Task[None]] = []

    async def start(self, host: str, port: int, *, reuse_port: bool = False) -> int:
        """Listen on a port (0 selects a free one) and return it."""
        require_auth_or_loopback(host, requires_auth=self.sockets.requires_auth)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: WebSocketConnection(self.sockets),
            host,
            port,
            reuse_port=reuse_port,
            ssl=self._tls,
            ssl_handshake_timeout=self.router.limits.auth_seconds if self._tls is not None else None,
            backlog=4096,
        )
        self._servers.append(server)
        self._start_timers()
        return int(server.sockets[0].getsockname()[1])

    async def start_local(self, path: Path) -> None:
        """Listen on a Unix socket as well, for programs of the same user on this machine."""
        remove_stale_socket(path)
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(lambda: WebSocketConnection(self.sockets), str(path))
        self._servers.append(server)
        restrict_to_owner(path)
        self._start_timers()

    def _start_timers(self) -> None:
        if not self._timer_tasks:
            loop = asyncio.get_running_loop()
            timers, buffers = self.sockets.timers, self.sockets.buffers
            self._timer_tasks = [loop.create_task(timers.run()), loop.create_task(buffers.run())]

    async def stop(self, *, drain_seconds: float = 5.0) -> None:
        """Ask every client to reconnect elsewhere, wait up to `drain_seconds`, then abort the rest."""
        sockets = self.sockets
        sockets.draining = True
        for server in self._servers:
            server.close()
        self.router.drain()
        if sockets.connected:
            with suppress(TimeoutError):
                await asyncio.wait_for(sockets.empty.wait(), drain_seconds)
        for task in self._timer_tasks:
            task.cancel()
        for socket in list(sockets.connected):
            socket.abort()
        await asyncio.sleep(0)

    def stats(self) -> link.GatewayStats:
        """Return the gateway's statistics for `/metrics`."""
        router = self.router
        return link.GatewayStats(
            connections=len(router.connections),
            subscriptions=router.subscriptions,
            outbox_bytes=self.sockets.buffers.outbox_bytes + router.in_process_outbox_bytes,
            outbox_limit_bytes=router.limits.gateway_outbox_bytes,
            load=int(router.load_monitor.load),
            counters=router.counters,
        )

"""The sockets of one server: who may connect, how many bytes wait, and the timers that all sockets share.

`listener.py` creates the set and listens; `websocket.py` adds and removes itself. Event loop only.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from typing import Protocol

from vedette.clock import Clock
from vedette.gateway.server.auth import LoopbackAuthenticator
from vedette.gateway.server.router import ConnectionRouter
from vedette.gateway.server.timers import ConnectionTimers, TimedConnection

__all__ = ["BufferAccounting", "BufferedSocket", "SocketSet", "max_sockets"]

_MEASURE_SECONDS = 0.1
_RESERVED_DESCRIPTORS = 2_048
"""File descriptors reserved for stores, links and HTTP."""


def max_sockets(connections: int) -> int:
    """Return the socket limit: all connections plus some that have not finished the handshake, within RLIMIT_NOFILE."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = connections + max(64, connections // 10)
    if allowed == resource.RLIM_INFINITY:
        return count
    return max(64, min(count, allowed - _RESERVED_DESCRIPTORS))


class BufferedSocket(TimedConnection, Protocol):
    """A socket with a write buffer, which is its client's outbox."""

    waiting: int
    """Outbox bytes at the last measurement."""

    def buffered(self) -> int:
        """Return the outbox bytes now."""
        ...

    def abort(self) -> None: ...


class BufferAccounting:
    """Sums of the bytes that are buffered for all sockets of a server."""

    def __init__(self, on_measured: Callable[[int], object]) -> None:
        """`on_measured` is called with the outbox bytes after each measurement."""
        self._on_measured = on_measured
        self.outbox_bytes = 0
        """Outbox bytes of all clients."""
        self.partial_message_bytes = 0
        """Bytes of incomplete messages of all clients."""
        self._backlog: set[BufferedSocket] = set()
        """Sockets whose outbox was not empty at the last measurement."""
        self._written: set[BufferedSocket] = set()
        """Sockets to be measured next."""
        self._scheduled = False

    async def run(self) -> None:
        """Measure the sockets with a backlog ten times a second, until cancelled."""
        while True:
            await asyncio.sleep(_MEASURE_SECONDS)
            self._written |= self._backlog
            self._measure()

    def mark_written(self, socket: BufferedSocket) -> None:
        """Note that bytes were passed to a transport, and measure its backlog at the end of this loop iteration."""
        self._written.add(socket)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._measure)

    def _measure(self) -> None:
        self._scheduled = False
        for socket in self._written:
            size = socket.buffered()
            self.outbox_bytes += size - socket.waiting
            socket.waiting = size
            if size:
                self._backlog.add(socket)
            else:
                self._backlog.discard(socket)
        self._written.clear()
        self._on_measured(self.outbox_bytes)

    def remove(self, socket: BufferedSocket) -> None:
        self._backlog.discard(socket)
        self._written.discard(socket)
        self.outbox_bytes -= socket.waiting
        socket.waiting = 0


class SocketSet:
    """The sockets of one server and what they share."""

    def __init__(
        self, router: ConnectionRouter, *, clock: Clock, allowed_origins: tuple[str, ...], uses_tls: bool
    ) -> None:
        self.router, self.clock = router, clock
        self.allowed_origins, self.uses_tls = allowed_origins, uses_tls
        self.requires_auth = not isinstance(router.authenticator, LoopbackAuthenticator)
        self.max_sockets = max_sockets(router.limits.max_connections)
        self.timers = ConnectionTimers(clock, heartbeat_seconds=router.limits.heartbeat_seconds)
        self.buffers = BufferAccounting(
            lambda size: router.load_monitor.measure(size + router.in_process_outbox_bytes)
        )
        self.connected: set[BufferedSocket] = set()
        self.empty = asyncio.Event()
        """Set when there are no sockets."""
        self.draining = False
        """True once the server stops; new connections are then rejected."""
        self.engine_unreachable = False
        """True while the engine cannot be reached; new connections are then rejected."""

    @property
    def is_refusing(self) -> bool:
        """True if new connections are rejected."""
        return self.draining or self.engine_unreachable or self.router.full

    def add(self, socket: BufferedSocket) -> None:
        """Add a socket. Above the limit it is aborted: there is no capacity even for a refusal."""
        if len(self.connected) >= self.max_sockets:
            socket.abort()
            return
        self.connected.add(socket)
        self.empty.clear()
        self.timers.add(socket)

    def remove(self, socket: BufferedSocket) -> None:
        self.connected.discard(socket)
        self.timers.remove(socket)
        self.buffers.remove(socket)
        if not self.connected:
            self.empty.set()

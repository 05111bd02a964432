"""Many WebSocket clients in one process, each as small as possible, because the server is measured.

A connection that is refused, or that ends before its handshake, raises `ConnectionRefused` in `connect_swarm`; each
wait has a limit. `closed_by_server` is the reason why a connection ended later.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import struct
from collections.abc import Callable, Iterable
from typing import cast

import msgspec

from benchmarks.waiting import wait_for

__all__ = [
    "ConnectionRefused",
    "SwarmClient",
    "closed_by_server",
    "connect_swarm",
    "masked",
    "text_frame",
]

JOIN_SECONDS = 120.0
"""Time limit for one connection and its handshake, while many others connect."""

_REQUEST = (
    "GET /realtime/ws HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
_MASK = b"\x00\x00\x00\x00"


def masked(message: object) -> bytes:
    return text_frame(msgspec.json.encode(message))


def text_frame(data: bytes) -> bytes:
    """Return a client's text frame with a mask of zeros, which is valid."""
    size = len(data)
    if size < 126:
        head = bytes((0x81, 0x80 | size))
    else:
        head = bytes((0x81, 0x80 | 126)) + struct.pack(">H", size)
    return head + _MASK + data


class ConnectionRefused(RuntimeError):
    """The server did not accept a connection, or closed it."""


class SwarmClient(asyncio.Protocol):
    """One connection. `heard` is called with every message and the number of the client."""

    __slots__ = ("_buffer", "_heard", "_open", "closed", "number", "opened", "transport")

    def __init__(self, number: int, heard: Callable[[int, bytes], None]) -> None:
        self.number = number
        self._heard = heard
        self._buffer = b""
        self._open = False
        self.transport: asyncio.Transport | None = None
        self.opened: asyncio.Future[None] | None = None
        self.closed = ""
        """Why the connection ended; empty while it is open."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data if self._buffer else data
        if not self._open:
            end = buffer.find(b"\r\n\r\n")
            if end < 0:
                self._buffer = buffer
                return
            status = buffer[:end].split(b"\r\n", 1)[0].decode(errors="replace")
            if " 101 " not in f"{status} ":
                self._end(f"the server answered '{status}'")
                return
            self._open, buffer = True, buffer[end + 4 :]
            if self.opened is not None and not self.opened.done():
                self.opened.set_result(None)
            self.opened = None
        place, size = 0, len(buffer)
        while size - place >= 2:
            length, start = buffer[place + 1] & 127, place + 2
            if length == 126:
                if size - place < 4:
                    break
                length, start = int.from_bytes(buffer[place + 2 : place + 4], "big"), place + 4
            elif length == 127:
                if size - place < 10:
                    break
                length, start = int.from_bytes(buffer[place + 2 : place + 10], "big"), place + 10
            if size - start < length:
                break
            if buffer[place] == 0x81:
                self._heard(self.number, buffer[start : start + length])
            elif buffer[place] == 0x89 and self.transport is not None:
                self.transport.write(b"\x8a\x80" + _MASK)
            elif buffer[place] == 0x88:
                code = int.from_bytes(buffer[start : start + 2], "big")
                reason = buffer[start + 2 : start + length].decode(errors="replace")
                self._end(f"the server closed the connection with code {code} {reason}".rstrip())
                return
            place = start + length
        self._buffer = buffer[place:]

    def connection_lost(self, error: Exception | None) -> None:
        self._end(f"the connection was lost ({error})" if error else "the connection was closed")

    def _end(self, reason: str) -> None:
        """Note why the connection ended; the first reason counts."""
        self.closed = self.closed or reason
        if self.opened is not None and not self.opened.done():
            self.opened.set_exception(ConnectionRefused(f"connection {self.number}: {reason}"))
        self.opened = None
        if self.transport is not None:
            self.transport.abort()

    def send(self, message: object) -> None:
        assert self.transport is not None
        self.transport.write(masked(message))


async def connect_swarm(
    port: int,
    count: int,
    heard: Callable[[int, bytes], None],
    *,
    first: int = 0,
    at_once: int = 200,
    then: Callable[[int], object] | None = None,
) -> list[SwarmClient]:
    """Connect `count` clients and authenticate them, `at_once` at a time; `then` gives the next message of each.

    Raises `ConnectionRefused` for the first connection that the server does not accept.
    """
    clients = [SwarmClient(first + n, heard) for n in range(count)]
    waiting = iter(clients)

    async def join_some() -> None:
        for client in waiting:
            await _join(client, port, next(_sources), then(client.number) if then is not None else None)

    try:
        async with asyncio.TaskGroup() as joining:  # a failure cancels the others
            for _ in range(min(at_once, count)):
                joining.create_task(join_some())
    except BaseExceptionGroup as failures:
        for client in clients:
            if client.transport is not None:
                client.transport.abort()
        raise failures.exceptions[0] from None
    return clients


def closed_by_server(clients: Iterable[SwarmClient]) -> str:
    """Return how many connections have ended, and why the first one did; empty when all are open."""
    ended = [client for client in clients if client.closed]
    return f"{len(ended)} connections ended; connection {ended[0].number}: {ended[0].closed}" if ended else ""


_AUTH = masked({"type": "auth", "id": "auth", "payload": {"database": "default"}})


_IP_BIND_ADDRESS_NO_PORT = 24
_sources = itertools.cycle([f"127.0.{1 + os.getpid() % 200}.{1 + n}" for n in range(50)])
"""Use several addresses: one has 28,000 ports, and the kernel is slow to find a free one among many."""


async def _join(client: SwarmClient, port: int, source: str, then: object) -> None:
    await wait_for(_connect(client, port, source), f"connection {client.number}", JOIN_SECONDS)
    assert client.transport is not None
    client.transport.write(_AUTH if then is None else _AUTH + masked(then))


async def _connect(client: SwarmClient, port: int, source: str) -> None:
    loop = asyncio.get_running_loop()
    opened = client.opened = loop.create_future()
    line = socket.socket()
    line.setblocking(False)
    line.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
    line.bind((source, 0))
    try:
        await loop.sock_connect(line, ("127.0.0.1", port))
        await loop.create_connection(lambda: client, sock=line)
    except OSError as error:
        line.close()
        raise ConnectionRefused(f"connection {client.number}: {error}") from error
    except asyncio.CancelledError:
        line.close()
        raise
    assert client.transport is not None
    client.transport.write(_REQUEST.format(port=port).encode())
    await opened

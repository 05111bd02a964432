"""Gateways as the broker sees them: the one in this process, and workers behind a Unix socket.

`LoopPort` passes records to the event loop of this process. `WorkerPort` is the connection of one worker, and
`WorkerLinks` listens for workers. The broker calls `send` on the engine thread; everything else runs on the event loop.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec

from vedette.gateway.broker.broker import GatewayLost
from vedette.gateway.broker.engine_thread import EngineThread
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.broker_link import (
    CONGESTED_BYTES,
    LINK_VERSION,
    MAX_FRAME_BYTES,
    decode_batch,
    encode_frames,
)
from vedette.transport.framing import FrameSplitter
from vedette.transport.unix_socket import remove_stale_socket, restrict_to_owner

__all__ = ["LoopPort", "StallDetector", "WorkerLinks", "WorkerPort"]

log = logging.getLogger(__name__)
_FIRST_FRAME_BYTES = 4096
"""Size limit of the Hello frame: the sender is not yet authenticated."""
_STALL_BYTES = 256 * 1024 * 1024
_STALL_SECONDS = 5.0
_MAX_UNSENT_BYTES = 4 * _STALL_BYTES
"""A worker is disconnected if its unsent bytes stay above `_STALL_BYTES` for `_STALL_SECONDS`, or ever exceed this.
Its clients then connect to other workers.
"""


class StallDetector:
    """Detects a peer that no longer reads. No I/O."""

    __slots__ = ("_high_bytes", "_max_bytes", "_seconds", "_since")

    def __init__(self, *, high_bytes: int, seconds: float, max_bytes: int) -> None:
        self._high_bytes, self._seconds, self._max_bytes = high_bytes, seconds, max_bytes
        self._since: float | None = None

    def is_stalled(self, waiting: int, now: float) -> bool:
        """Return True if `waiting` bytes are too many, or were above the bound for too long."""
        if waiting <= self._high_bytes:
            self._since = None
            return False
        self._since = now if self._since is None else self._since
        return waiting > self._max_bytes or now - self._since >= self._seconds


class LoopPort:
    """The gateway in this process. Records are delivered on the event loop.

    Records sent while the loop is busy are delivered together, so higher load needs fewer writes per record.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queued: deque[tuple[list[Any], int]] = deque()
        """Batches not yet delivered, each with its payload bytes."""
        self._scheduled = False
        """True if delivery is scheduled on the loop and has not started."""
        self.deliver: Callable[[list[Any]], None] | None = None
        self._bytes_sent = 0
        self._bytes_delivered = 0

    @property
    def congested(self) -> bool:
        return self._bytes_sent - self._bytes_delivered > CONGESTED_BYTES

    def send(self, records: list[Any]) -> None:
        size = sum(map(link.payload_bytes, records))
        self._bytes_sent += size
        self._queued.append((records, size))
        if self._scheduled:
            return
        self._scheduled = True
        try:
            self._loop.call_soon_threadsafe(self._deliver_queued)
        except RuntimeError:  # the event loop has stopped, and its clients with it
            self._queued.clear()
            self._scheduled = False
            log.debug(
                "The event loop has ended; records for clients are dropped",
                extra={"action": "gateway.closed"},
            )

    def _deliver_queued(self) -> None:
        # Reset first: records sent from here on may miss this delivery and must schedule another one.
        self._scheduled = False
        records: list[Any] = []
        while self._queued:
            batch, size = self._queued.popleft()
            records += batch
            self._bytes_delivered += size
        if records and self.deliver is not None:
            self.deliver(records)


class WorkerLinks:
    """Listens for workers."""

    def __init__(self, engine: EngineThread, secret: bytes) -> None:
        self.engine = engine
        self.secret = secret
        self.ports: dict[WorkerPort, None] = {}
        """Authenticated workers, the most recent last."""
        self._server: asyncio.AbstractServer | None = None

    async def start(self, path: Path) -> None:
        remove_stale_socket(path)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: WorkerPort(self), str(path))
        restrict_to_owner(path)

    async def stop(self, *, drain_seconds: float = 5.0) -> None:
        """Ask the workers to drain their clients, wait up to `drain_seconds`, then abort the rest."""
        if self._server is not None:
            self._server.close()
        for port in list(self.ports):
            port.write([link.Drain(seconds=drain_seconds)])
        deadline = asyncio.get_running_loop().time() + drain_seconds
        while self.ports and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 - rare and bounded
            await asyncio.sleep(0.02)
        for port in list(self.ports):
            port.abort()


class WorkerPort(asyncio.Protocol):
    """One worker. The broker calls `send` on the engine thread."""

    def __init__(self, links: WorkerLinks) -> None:
        self._links = links
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._splitter = FrameSplitter(_FIRST_FRAME_BYTES)
        self._authenticated = False
        self._stall_detector = StallDetector(
            high_bytes=_STALL_BYTES, seconds=_STALL_SECONDS, max_bytes=_MAX_UNSENT_BYTES
        )
        self._bytes_sent = 0
        self._bytes_written = 0
        """Bytes of `_bytes_sent` that were passed to the transport."""
        self.name = ""
        self.stats: link.GatewayStats | None = None
        """Latest statistics of the worker."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._splitter.feed(data):
                self._receive(decode_batch(frame, from_gateway=True))
        except (ValueError, msgspec.MsgspecError) as error:
            extra = {"action": "link.invalid_frame", "gateway": self.name}
            log.warning("Closing link to worker %s: invalid frame (%s)", self.name, error, extra=extra)
            self.abort()

    def _receive(self, records: list[Any]) -> None:
        for record in records:
            if self._authenticated and isinstance(record, link.GatewayStats):
                self.stats = record
            elif self._authenticated and not isinstance(record, link.Hello):
                if not self._links.engine.post(self, record, bypass_limit=link.is_control(record)):
                    self.write([link.busy_reply(record)])
            elif isinstance(record, link.Hello) and not self._authenticated:
                self._handshake(record)
            else:
                raise ValueError("the first record of a link must be a Hello")

    def _handshake(self, hello: link.Hello) -> None:
        if not hmac.compare_digest(hello.secret, self._links.secret):
            self.write([link.LinkRejected(reason="the secret of the data directory does not match")])
        elif hello.version != LINK_VERSION:
            self.write([link.LinkRejected(reason=f"this engine requires link version {LINK_VERSION}")])
        else:
            self._authenticated, self.name = True, hello.name
            self._splitter.max_bytes = MAX_FRAME_BYTES
            self._links.ports[self] = None
            self.write([link.Welcome(version=LINK_VERSION)])
            return
        if self._transport is not None:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._transport = None
        self._links.ports.pop(self, None)
        if self._authenticated:
            self._links.engine.post_event(GatewayLost(self))

    @property
    def congested(self) -> bool:
        transport = self._transport
        waiting = transport.get_write_buffer_size() if transport is not None else 0
        return self._bytes_sent - self._bytes_written + waiting > CONGESTED_BYTES

    def send(self, records: list[Any]) -> None:
        """Send records. Called on the engine thread."""
        frames = encode_frames(records)
        self._bytes_sent += sum(map(len, frames))
        try:
            self._loop.call_soon_threadsafe(self._write, frames)
        except RuntimeError:  # the event loop has stopped
            log.debug(
                "The event loop has ended; records for gateway %s are dropped",
                self.name,
                extra={"action": "link.closed"},
            )

    def write(self, records: list[Any]) -> None:
        frames = encode_frames(records)
        self._bytes_written -= sum(map(len, frames))  # these bytes were not counted by `send`
        self._write(frames)

    def _write(self, frames: list[bytes]) -> None:
        self._bytes_written += sum(map(len, frames))
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.writelines(frames)
        if self._stall_detector.is_stalled(transport.get_write_buffer_size(), self._loop.time()):
            extra = {"action": "link.stalled", "gateway": self.name}
            log.warning("Closing link to worker %s: it does not read", self.name, extra=extra)
            transport.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

"""Links to gateway workers over a Unix socket, one connection per worker."""

from __future__ import annotations

import asyncio
import hmac
import logging
from pathlib import Path
from typing import Any, cast

import msgspec

from vedette.gateway.broker.engine_thread import EngineThread
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.broker_link import CONGESTED_BYTES, LINK_VERSION, decode_batch, encode_frames
from vedette.transport.unix_socket import remove_stale_socket, restrict_to_owner

__all__ = ["MAX_FRAME_BYTES", "FrameReader", "StallDetector", "WorkerLinks", "WorkerPort"]

log = logging.getLogger(__name__)
MAX_FRAME_BYTES = 256 * 1024 * 1024
_FIRST_FRAME_BYTES = 4096
"""Size limit of the Hello frame: the sender is not yet authenticated."""
_WAITING_BYTES = 256 * 1024 * 1024
_STALL_SECONDS = 5.0
_MAX_WAITING_BYTES = 4 * _WAITING_BYTES
"""A worker is disconnected if its unsent bytes stay above `_WAITING_BYTES` for `_STALL_SECONDS`, or ever exceed this.
Its clients then connect to other workers.
"""


class FrameReader:
    """Splits a byte stream into frames: 4 bytes of length, then the body. No I/O."""

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self._buffer = bytearray()
        self.max_bytes = max_bytes

    def feed(self, data: bytes) -> list[bytes]:
        """Return the frames that are now complete. Raise ValueError if a length exceeds the limit."""
        buffer = self._buffer
        buffer += data
        frames: list[bytes] = []
        while len(buffer) >= 4:
            size = int.from_bytes(buffer[:4], "big")
            if size > self.max_bytes:
                raise ValueError(f"frame of {size} bytes exceeds the limit")
            if len(buffer) < 4 + size:
                break
            frames.append(bytes(buffer[4 : 4 + size]))
            del buffer[: 4 + size]
        return frames


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
        self._reader = FrameReader(_FIRST_FRAME_BYTES)
        self._authenticated = False
        self._stall_detector = StallDetector(
            high_bytes=_WAITING_BYTES, seconds=_STALL_SECONDS, max_bytes=_MAX_WAITING_BYTES
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
            for frame in self._reader.feed(data):
                self._receive(decode_batch(frame, from_gateway=True))
        except (ValueError, msgspec.MsgspecError) as error:
            extra = {"action": "link.garbage", "gateway": self.name}
            log.warning("A gateway sent an invalid frame; its connection is closed: %s", error, extra=extra)
            self.abort()

    def _receive(self, records: list[Any]) -> None:
        for record in records:
            if self._authenticated and isinstance(record, link.GatewayStats):
                self.stats = record
            elif self._authenticated and not isinstance(record, link.Hello):
                bypass_limit = isinstance(record, link.CloseConnection | link.UpdateClaims)
                if not self._links.engine.post(self, record, bypass_limit=bypass_limit):
                    self._send_busy(record)
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
            self._reader.max_bytes = MAX_FRAME_BYTES
            self._links.ports[self] = None
            self.write([link.Welcome(version=LINK_VERSION)])
            return
        if self._transport is not None:
            self._transport.close()

    def _send_busy(self, record: Any) -> None:
        """Reply that the engine is overloaded. A rejected replay request becomes resync-required."""
        if isinstance(record, link.ReplayRequest):
            self.write([link.ResyncRequired(conn=record.conn, sub_id=record.sub_id, reason="overflow")])
            return
        id = getattr(record, "sub_id" if isinstance(record, link.SubscribeRequest) else "id", None)
        payload = {"code": "busy", "message": "the server is overloaded: try again later", "retryable": True}
        self.write([link.RequestFailed(conn=record.conn, id=id, payload=payload)])

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._transport = None
        self._links.ports.pop(self, None)
        if self._authenticated:
            engine = self._links.engine
            engine.post_event(lambda: engine.broker.on_gateway_lost(self))

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
                extra={"action": "link.late"},
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
            extra = {"action": "link.stuck", "gateway": self.name}
            log.warning("Gateway %s does not read; its connection is closed", self.name, extra=extra)
            transport.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

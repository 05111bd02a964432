"""One WebSocket: bytes on one side, a `Connection` on the other. Event loop only.

This `asyncio.Protocol` moves bytes between the transport and websockets' sans-I/O protocol, which parses frames. A
message for many receivers is framed once (`outbound.py`) and written to each transport; nothing is awaited per
receiver. In a large batch, each socket gets its frames in one write (`WriteBatcher`). The transport's write buffer
is the client's outbox, and its limits are the outbox's high and low marks.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from datetime import datetime
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import urlsplit

from websockets.exceptions import InvalidHandshake
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import Protocol as WebSocketProtocol
from websockets.protocol import Side
from websockets.protocol import State as WebSocketState
from websockets.server import ServerProtocol

try:
    from websockets.speedups import apply_mask
except ImportError:  # platforms without the compiled extension
    from websockets.utils import apply_mask

from vedette.gateway.server.access import origin_allowed
from vedette.gateway.server.connection import Connection
from vedette.gateway.server.outbound import FrameBatch, OutboundFrame
from vedette.gateway.server.sockets import SocketSet
from vedette.gateway.wire.close_codes import CloseCode

__all__ = ["PATH", "WebSocketConnection"]

log = logging.getLogger(__name__)
PATH = "/realtime/ws"
_websockets_log = logging.getLogger("vedette.gateway.websockets")
_websockets_log.setLevel(logging.CRITICAL)
_PING = bytes((0x89, 0x00))
_TEXT, _PONG = 0x81, 0x8A
"""First bytes of unfragmented text and pong frames."""
_CLOSE_SECONDS = 5.0
_MIN_PROGRESS_BYTES = 65_536
"""A client that reads less than this in `stalled_seconds` counts as stalled."""
_IDLE_PARSER_STEP = "at_eof"
"""Name of the generator in which websockets' parser waits for a new frame. Inside a frame it waits in another one."""


def _innermost_generator(generator: Any) -> str:
    """Return the name of the innermost suspended generator."""
    while (inner := getattr(generator, "gi_yieldfrom", None)) is not None:
        generator = inner
    return str(getattr(generator, "__name__", ""))


class WebSocketConnection(asyncio.Protocol):
    """One WebSocket connection."""

    __slots__ = (
        "_closing_at",
        "_connection",
        "_deadline",
        "_descriptor",
        "_fragments",
        "_max_message_bytes",
        "_partial_bytes",
        "_pinged",
        "_protocol",
        "_received_since_beat",
        "_sent_code",
        "_sockets",
        "_stalled_deadline",
        "_transport",
        "_unsent_mark",
        "bucket",
        "waiting",
    )

    def __init__(self, sockets: SocketSet) -> None:
        self._sockets = sockets
        limits = sockets.router.limits
        self._max_message_bytes = min(limits.first_frame_bytes, limits.max_frame_bytes)
        self._protocol: WebSocketProtocol | None = ServerProtocol(
            max_size=self._max_message_bytes, logger=_websockets_log
        )
        """None between messages. The parser holds no state then, and most connections are idle."""
        self._transport: asyncio.Transport | None = None
        self._descriptor = -1
        """Descriptor of the socket; -1 with TLS. Another socket may reuse it once the transport is closing."""
        self._connection: Connection | None = None
        self._fragments: bytearray | None = None
        """Payload of a fragmented message so far. The parser bounds its size."""
        self._deadline: float | None = sockets.clock.monotonic() + limits.auth_seconds
        """Monotonic time by which the client must authenticate."""
        self._closing_at: float | None = None
        self._stalled_deadline: float | None = None
        self._unsent_mark = 0
        """Unsent bytes at the last stall check, plus the bytes queued since."""
        self._sent_code: int | None = None
        self._partial_bytes = 0
        self._received_since_beat = True
        self._pinged = 0
        self.bucket = 0
        self.waiting = 0

    # --- transport ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        limits = self._sockets.router.limits
        self._transport.set_write_buffer_limits(limits.outbox_high_bytes, limits.outbox_low_bytes)
        sock = transport.get_extra_info("socket") if not self._sockets.uses_tls else None
        if sock is not None:
            self._descriptor = sock.fileno()
        self._sockets.add(self)

    def data_received(self, data: bytes) -> None:
        self._received_since_beat = True
        rest = self._read_simple_frames(data) if self._protocol is None else data
        if not rest:
            return
        protocol = self._ensure_protocol()
        protocol.receive_data(rest)
        for event in protocol.events_received():
            self._guarded(self._on_event, event)
        self._flush()
        self._release_protocol()
        self._count_partial_bytes()

    def _count_partial_bytes(self) -> None:
        """Account for the bytes of an incomplete message. Their sum over all connections is bounded."""
        protocol, buffers = self._protocol, self._sockets.buffers
        held = len(protocol.reader.buffer) + len(self._fragments or ()) if protocol is not None else 0
        if held == self._partial_bytes:
            return
        buffers.partial_message_bytes += held - self._partial_bytes
        self._partial_bytes = held
        limits = self._sockets.router.limits
        if held > limits.first_frame_bytes and buffers.partial_message_bytes > limits.gateway_pending_bytes:
            self.close(
                CloseCode.TRY_LATER,
                "too many bytes of incomplete messages: send smaller messages or retry later",
            )

    def _read_simple_frames(self, data: bytes) -> bytes:
        """Parse complete text and pong frames without websockets' protocol, and return the remaining bytes. Nearly all
        inbound traffic is such frames.
        """
        position, size = 0, len(data)
        while size - position >= 6 and self._protocol is None and self._connection is not None:
            opcode, length, start = data[position], data[position + 1] ^ 0x80, position + 2
            if length == 126 and opcode == _TEXT:
                length, start = int.from_bytes(data[start : start + 2], "big"), start + 2
                if length < 126:
                    break
            elif length >= 126 or opcode not in (_TEXT, _PONG):
                break
            end = start + 4 + length
            if end > size or length > self._max_message_bytes:
                break
            if opcode == _TEXT:
                message = apply_mask(data[start + 4 : end], data[start : start + 4])
                self._guarded(self._receive, message, self._connection)
            position = end
        return data[position:]

    def _guarded(self, work: Callable[..., None], *given: Any) -> None:
        """Run a function. An exception closes only this connection."""
        try:
            work(*given)
        except Exception:
            log.exception(
                "A frame could not be processed; its connection is closed",
                extra={"action": "gateway.frame_failed"},
            )
            self.close(CloseCode.INTERNAL, "internal error")

    def _ensure_protocol(self) -> WebSocketProtocol:
        """Return the websockets protocol, creating it if it was released."""
        if self._protocol is None:
            self._protocol = WebSocketProtocol(
                Side.SERVER, max_size=self._max_message_bytes, logger=_websockets_log
            )
        return self._protocol

    def _release_protocol(self) -> None:
        """Release the websockets protocol between messages, when it holds no state."""
        protocol = self._protocol
        if protocol is None or protocol.state is not WebSocketState.OPEN or self._fragments is not None:
            return
        if not protocol.reader.buffer and _innermost_generator(protocol.parser) == _IDLE_PARSER_STEP:
            self._protocol = None

    @property
    def is_idle(self) -> bool:
        return self._protocol is None

    def eof_received(self) -> bool:
        self._ensure_protocol().receive_eof()
        self._flush()
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._sockets.buffers.partial_message_bytes -= self._partial_bytes
        self._partial_bytes = 0
        self._sockets.remove(self)
        connection, self._connection = self._connection, None
        if connection is not None:
            received = self._protocol.close_rcvd if self._protocol is not None else None
            client_closed = received is not None and received.code in (1000, 1001) and self._sent_code is None
            server_asked = self._sent_code in (CloseCode.DRAINING, CloseCode.ENGINE_LOST)
            self._sockets.router.disconnect(
                connection, clean=client_closed or server_asked, may_resume=not client_closed
            )

    def pause_writing(self) -> None:
        self._stalled_deadline = self._sockets.clock.monotonic() + self._sockets.router.limits.stalled_seconds
        self._unsent_mark = self.buffered()
        self._sockets.timers.with_deadline.add(self)
        if self._connection is not None:
            self._sockets.router.outbox_filled(self._connection)
        if self._transport is not None:
            self._transport.pause_reading()  # stop reading from a client that does not read

    def resume_writing(self) -> None:
        self._stalled_deadline = None
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        if self._connection is not None:
            self._sockets.router.outbox_drained(self._connection)

    # --- frames -------------------------------------------------------------------------------------------------

    def _on_event(self, event: Any) -> None:
        if isinstance(event, Request):
            self._accept_handshake(event)
        elif isinstance(event, Frame) and self._connection is not None:
            self._frame(event, self._connection)

    def _accept_handshake(self, request: Request) -> None:
        protocol = self._protocol
        assert isinstance(protocol, ServerProtocol)
        refusal = self._refusal(request)
        if refusal is not None:
            protocol.send_response(protocol.reject(*refusal))
            return
        response = protocol.accept(request)
        protocol.send_response(response)
        self._flush()  # the handshake response must precede any message
        if response.status_code == HTTPStatus.SWITCHING_PROTOCOLS:
            self._connection = self._sockets.router.connect(self)

    def _refusal(self, request: Request) -> tuple[HTTPStatus, str] | None:
        path = urlsplit(request.path)
        if path.path.rstrip("/") != PATH:
            return HTTPStatus.NOT_FOUND, f"The realtime endpoint is {PATH}\n"
        if "token=" in path.query:
            return HTTPStatus.UNAUTHORIZED, "Send the token in the auth message, not in the URL\n"
        try:
            origin, host = request.headers.get("Origin"), request.headers.get("Host", "")
        except (InvalidHandshake, LookupError):
            return HTTPStatus.BAD_REQUEST, "Send exactly one Origin and one Host header\n"
        sockets = self._sockets
        if not origin_allowed(origin, host, sockets.allowed_origins, requires_auth=sockets.requires_auth):
            return HTTPStatus.FORBIDDEN, "Origin not allowed\n"
        if sockets.is_refusing:
            return HTTPStatus.SERVICE_UNAVAILABLE, "Connection limit reached\n"
        return None

    def _frame(self, frame: Frame, connection: Connection) -> None:
        if frame.opcode is Opcode.TEXT and frame.fin:
            self._receive(frame.data, connection)
        elif frame.opcode is Opcode.TEXT:
            self._fragments = bytearray(frame.data)
        elif frame.opcode is Opcode.CONT and self._fragments is not None:
            self._fragments += frame.data
            if frame.fin:
                whole, self._fragments = self._fragments, None
                self._receive(whole, connection)
        elif frame.opcode is Opcode.BINARY:
            connection.send_error("invalid_frame", "messages must be text frames with JSON")

    def _receive(self, data: bytes | bytearray | memoryview, connection: Connection) -> None:
        before = connection.grant
        connection.receive(bytes(data))
        grant = connection.grant
        if grant is None or grant is before:
            return
        if self._deadline is not None:
            self._deadline = None
            self._sockets.timers.with_deadline.discard(self)
            self._max_message_bytes = self._sockets.router.limits.max_frame_bytes
            if self._protocol is not None:
                self._protocol.max_message_size = self._max_message_bytes
        if grant.expires_at is not None:
            self._sockets.timers.schedule_expiry(self, grant.expires_at.timestamp())

    # --- a sink for the connection ------------------------------------------------------------------------------

    def send_batch(self, batch: FrameBatch) -> None:
        self.send(batch)

    def send(self, frame: OutboundFrame | FrameBatch) -> None:
        batcher = self._sockets.router.write_batcher
        if batcher.active:
            batcher.add(self, frame.framed)
        else:
            self.write(frame.framed)

    def write_batch(self, framed: bytes) -> None:
        try:
            self.write(framed)
        except Exception:
            log.exception(
                "A socket could not be written; its connection is closed",
                extra={"action": "gateway.write_failed"},
            )
            self._abort_with(CloseCode.INTERNAL)

    def write(self, framed: bytes) -> None:
        """Write one or more complete frames."""
        transport = self._transport
        if transport is None or self._closing_at is not None or transport.is_closing():
            return
        if self._descriptor >= 0 and not transport.get_write_buffer_size():
            framed = self._write_now(framed)
        if not framed:
            return
        if self._stalled_deadline is not None:
            limits = self._sockets.router.limits
            if self.buffered() + len(framed) > limits.outbox_high_bytes + limits.outbox_excess_bytes:
                self._abort_with(CloseCode.STALLED)
                return
            self._unsent_mark += len(framed)
        transport.write(framed)
        self._sockets.buffers.mark_written(self)

    def _write_now(self, framed: bytes) -> bytes:
        """Write directly to the socket, avoiding most of the transport's cost. Return the bytes that did not fit."""
        try:
            written = os.write(self._descriptor, framed)
        except OSError:  # full or broken; the transport will report which
            return framed
        return framed[written:] if written < len(framed) else b""

    def close(self, code: int, reason: str) -> None:
        if self._closing_at is not None:
            return
        self._sockets.router.write_batcher.flush(self)
        self._sent_code = code
        protocol = self._ensure_protocol()
        if protocol.state is WebSocketState.OPEN:
            protocol.send_close(code, reason)
            self._flush()
        self._closing_at = self._sockets.clock.monotonic() + _CLOSE_SECONDS
        self._sockets.timers.with_deadline.add(self)

    def _flush(self) -> None:
        transport = self._transport
        for data in self._protocol.data_to_send() if self._protocol is not None else ():
            if transport is None or transport.is_closing():
                return
            if data:
                transport.write(data)
            else:
                transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def buffered(self) -> int:
        transport = self._transport
        return (
            transport.get_write_buffer_size() if transport is not None and not transport.is_closing() else 0
        )

    # --- time ---------------------------------------------------------------------------------------------------

    def send_heartbeat(self) -> None:
        """Send a heartbeat and a ping, once per heartbeat interval. Abort a client that was silent after two pings."""
        if self._connection is None or self._transport is None or self._closing_at is not None:
            return
        if self._received_since_beat:
            self._pinged = 0
        elif self._pinged >= 2:
            self._abort_with(CloseCode.UNRESPONSIVE)
            return
        self._received_since_beat = False
        self._pinged += 1
        if self._stalled_deadline is None:
            self._transport.write(_PING)
            self._connection.send_heartbeat()

    def _abort_with(self, code: CloseCode) -> None:
        """Abort without a close frame: the client does not read."""
        self._sent_code = code
        self._sockets.router.counters.count_closed(code)
        self.abort()

    def check(self, now: float) -> None:
        """Close or abort the connection if one of its deadlines has passed."""
        if self._closing_at is not None:
            if now >= self._closing_at:
                self.abort()
        elif self._stalled_deadline is not None:
            if now >= self._stalled_deadline:
                self._check_stalled(now)
        elif self._deadline is None:
            self._sockets.timers.with_deadline.discard(self)
        elif now >= self._deadline and self._connection is not None:
            self._connection.close(CloseCode.AUTH_TIMEOUT, "no auth message in time")
        elif now >= self._deadline:
            self.abort()

    def _check_stalled(self, now: float) -> None:
        """Abort a stalled client. A slow client that made progress gets a new deadline."""
        left = self.buffered()
        if self._unsent_mark - left < _MIN_PROGRESS_BYTES:
            self._abort_with(CloseCode.STALLED)
        else:
            self._unsent_mark, self._stalled_deadline = (
                left,
                now + self._sockets.router.limits.stalled_seconds,
            )

    def expire(self, moment: datetime) -> None:
        if self._connection is not None:
            self._connection.expire(moment)

"""HTTP requests as gateway connections: the same protocol and limits over another transport."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from vedette.gateway.server.backpressure import OutboxMeter
from vedette.gateway.server.outbound import FrameBatch, OutboundFrame
from vedette.gateway.server.router import ConnectionRouter
from vedette.gateway.wire.close_codes import CloseCode
from vedette.gateway.wire.messages import encode

__all__ = ["InProcessConnection", "open_in_process"]


class InProcessConnection:
    """A gateway connection whose messages are awaited in this process."""

    def __init__(self, router: ConnectionRouter, outbox: OutboxMeter) -> None:
        self._router = router
        self._outbox = outbox
        self._messages: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._connection = router.connect(self)
        self._excess = 0
        """Bytes received since the outbox became full."""
        self.closed: tuple[int, str] | None = None

    # --- sink of the connection ---------------------------------------------------------------------------------

    def send(self, frame: OutboundFrame) -> None:
        if self.closed is not None:
            return
        if self._outbox.is_full:
            self._excess += len(frame.message)
            if self._excess > self._router.limits.outbox_excess_bytes:
                self._connection.close(CloseCode.STALLED, "too many unread bytes")
                return
        self._messages.put_nowait(frame.message)
        self._router.in_process_outbox_bytes += len(frame.message)
        if self._outbox.add(len(frame.message)):
            self._router.outbox_filled(self._connection)

    def send_batch(self, batch: FrameBatch) -> None:
        for frame in batch.frames:
            self.send(frame)

    def close(self, code: int, reason: str) -> None:
        self.closed = (code, reason)
        self._messages.put_nowait(None)

    # --- for the HTTP handler -----------------------------------------------------------------------------------

    def send_message(self, type: str, payload: Any, id: str | None = None) -> None:
        self._connection.receive(encode({"type": type, "id": id, "payload": payload}))

    async def receive(self) -> bytes | None:
        """Return the next message; None if the connection was closed."""
        data = await self._messages.get()
        if data is not None:
            self._router.in_process_outbox_bytes -= len(data)
            if self._outbox.drained(self._outbox.waiting - len(data)):
                self._excess = 0
                self._router.outbox_drained(self._connection)
        return data

    async def request(self, type: str, payload: Any) -> dict[str, Any]:
        """Send a message and wait for its reply."""
        self.send_message(type, payload, "http")
        while True:
            data = await self.receive()
            if data is None:
                code = self.closed[0] if self.closed is not None else 0
                return {"type": "error", "payload": {"code": "closed", "message": f"closed with {code}"}}
            message: dict[str, Any] = msgspec.json.decode(data)
            if message.get("id") == "http":
                return message

    def expire(self) -> bool:
        """Close the connection if its token has expired. Return True if it was closed."""
        return self._connection.expire(self._router.now())

    def seconds_left(self) -> float:
        """Return the remaining lifetime of the token."""
        grant = self._connection.grant
        if grant is None or grant.expires_at is None:
            return math.inf
        return max(0.0, (grant.expires_at - self._router.now()).total_seconds())

    def closing_messages(self) -> list[bytes]:
        """Return the queued status messages, which say why it ended. Other queued messages are dropped: the token is no
        longer valid for them.
        """
        messages: list[bytes] = []
        while not self._messages.empty():
            data = self._messages.get_nowait()
            if data is not None and data.startswith(b'{"type":"status"'):
                messages.append(data)
        return messages

    def end(self, *, clean: bool) -> None:
        self._router.in_process_outbox_bytes -= self._outbox.waiting
        self._router.disconnect(self._connection, clean=clean)


@asynccontextmanager
async def open_in_process(router: ConnectionRouter, *, clean: bool) -> AsyncIterator[InProcessConnection]:
    """Open a connection for one request. `clean`: the client will not resume it."""
    high = min(router.limits.stream_outbox_bytes, router.limits.outbox_high_bytes)
    connection = InProcessConnection(router, OutboxMeter(high, high // 4))
    try:
        yield connection
    finally:
        connection.end(clean=clean)

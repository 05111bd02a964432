"""Accepts deliveries of the pipeline over the ingest link (`vedette.transport.ingest_messages`). Event loop.

A delivery is accepted once the engine thread has numbered it and it is in the replay window. From then on it reaches
its subscribers, or they get resync-required. Only then may the pipeline advance its checkpoint.

When a link closes, its unprocessed deliveries are dropped together, as if they had been lost in transit. They were not
accepted, so the pipeline sends them again over another link, starting with the first (`vedette.transport.unaccepted`).
Keeping them would let a retrying pipeline fill the memory of a busy gateway.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

from vedette.errors import PipelineError
from vedette.transport.ingest_messages import (
    Accepted,
    Complete,
    Deliver,
    Frame,
    FrameReader,
    Hello,
    Refused,
    Status,
    Welcome,
    encode_frame,
)
from vedette.transport.unix_socket import remove_stale_socket, restrict_to_owner

__all__ = ["DeliveryReady", "FrameReceived", "IngestConnection", "IngestServer"]

log = logging.getLogger(__name__)
_FIRST_FRAME_BYTES = 4096
"""Size limit of the Hello frame: the sender is not yet authenticated."""


class DeliveryReady(NamedTuple):
    """Event for the engine thread: a connection has a delivery. `next_delivery` returns it."""

    connection: IngestConnection


class FrameReceived(NamedTuple):
    """Event for the engine thread: the end of a batch, or the status of partitions."""

    frame: Complete | Status


class IngestServer:
    """Listens on a Unix socket, and on a TCP port if executors run on other machines."""

    def __init__(self, secret: str, post_event: Callable[[Any], None]) -> None:
        """`post_event` passes a `DeliveryReady` or `FrameReceived` to the engine thread, which keeps their order."""
        self.secret = secret
        self.post_event = post_event
        self.links: set[IngestConnection] = set()
        self._servers: list[asyncio.AbstractServer] = []

    async def start_local(self, path: Path) -> None:
        remove_stale_socket(path)
        loop = asyncio.get_running_loop()
        self._servers.append(await loop.create_unix_server(lambda: IngestConnection(self), str(path)))
        restrict_to_owner(path)

    async def start(self, host: str, port: int) -> int:
        """Listen on a port (0 selects a free one) and return it."""
        server = await asyncio.get_running_loop().create_server(lambda: IngestConnection(self), host, port)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        for server in self._servers:
            server.close()
        for link in list(self.links):
            link.close()


class IngestConnection(asyncio.Protocol):
    """A connection from an executor's worker or from the driver."""

    def __init__(self, server: IngestServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader(_FIRST_FRAME_BYTES)
        self._authenticated = False
        self._unprocessed: deque[Deliver] = deque()
        """Deliveries not yet processed. The engine thread takes the first one or finds the queue empty: a delivery must
        never be processed if an earlier one was dropped.
        """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._server.links.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._transport = None
        self._server.links.discard(self)
        self._unprocessed.clear()

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._reader.feed(data):
                self._receive(frame)
        except PipelineError as error:
            log.warning("Closing an ingest connection: %s", error, extra={"action": "ingest.refused"})
            self._send(Refused(reason=error.text))
            self.close()

    def _receive(self, frame: Frame) -> None:
        if isinstance(frame, Hello) and not self._authenticated:
            self._handshake(frame)
        elif not self._authenticated:
            raise PipelineError("E6302", "the first frame of a link must be a Hello")
        elif isinstance(frame, Deliver):
            self._unprocessed.append(frame)
            self._server.post_event(DeliveryReady(self))
        elif isinstance(frame, Complete | Status):
            self._server.post_event(FrameReceived(frame))
        else:
            raise PipelineError("E6302", f"a pipeline cannot send {type(frame).__name__}")

    def _handshake(self, hello: Hello) -> None:
        if not hmac.compare_digest(hello.secret.encode(), self._server.secret.encode()):
            raise PipelineError("E6302", "the secret of the data directory does not match")
        self._authenticated = True
        self._reader.lift_size_limit()
        self._send(Welcome(gateway="engine"))

    def next_delivery(self) -> Deliver | None:
        """Return the next delivery; None if the connection has closed. Engine thread."""
        try:
            return self._unprocessed.popleft()
        except IndexError:
            return None

    def accept(self, number: int) -> None:
        """Confirm a delivery. The pipeline may then advance its checkpoint. Engine thread."""
        frame = Accepted(number=number)
        try:
            self._loop.call_soon_threadsafe(self._send, frame)
        except RuntimeError:  # the event loop has stopped
            log.debug(
                "The event loop has ended; a frame for the pipeline is dropped",
                extra={"action": "ingest.closed"},
            )

    def _send(self, frame: Frame) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode_frame(frame))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

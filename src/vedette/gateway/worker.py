"""A gateway worker: a process with client sockets and a link to the engine.

A worker holds no durable state: streams, windows and sessions belong to the engine. When a worker ends, its clients
connect to another one and resume. When the engine is unreachable, the worker closes its connections and rejects new
ones until the link is restored.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Any, cast

import msgspec

from vedette.clock import Clock
from vedette.gateway.limits import GatewayLimits
from vedette.gateway.server.auth import Authenticator
from vedette.gateway.server.listener import GatewayServer
from vedette.gateway.server.router import ConnectionRouter
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.broker_link import (
    LINK_VERSION,
    MAX_FRAME_BYTES,
    decode_batch,
    encode_batch,
    encode_frames,
)
from vedette.transport.framing import FrameSplitter

__all__ = ["GatewayWorker"]

log = logging.getLogger(__name__)
_RETRY_SECONDS = 0.25
_REPORT_SECONDS = 1.0
_MAX_UNSENT_BYTES = 64 * 1024 * 1024


class _BrokerLink(asyncio.Protocol):
    """The worker's end of the link."""

    def __init__(self, worker: GatewayWorker) -> None:
        self._worker = worker
        self._splitter = FrameSplitter(MAX_FRAME_BYTES)
        self.transport: asyncio.Transport | None = None
        self.welcome = asyncio.get_running_loop().create_future()
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._splitter.feed(data):
                self._receive(decode_batch(frame, from_gateway=False))
        except (ValueError, msgspec.MsgspecError):
            log.exception(
                "The engine sent an invalid frame; the connection is closed",
                extra={"action": "link.invalid_frame"},
            )
            if self.transport is not None:
                self.transport.abort()

    def _receive(self, records: list[Any]) -> None:
        for record in records:
            if isinstance(record, link.Welcome) and not self.welcome.done():
                self.welcome.set_result(None)
            elif isinstance(record, link.LinkRejected) and not self.welcome.done():
                self.welcome.set_exception(PermissionError(record.reason))
        self._worker.deliver([r for r in records if not isinstance(r, link.Welcome | link.LinkRejected)])

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.transport = None
        self.lost.set()
        if not self.welcome.done():
            self.welcome.set_result(None)


class GatewayWorker:
    """Runs a gateway server and reconnects its link to the engine. Start it inside a running event loop."""

    def __init__(
        self,
        *,
        socket: Path,
        secret: bytes,
        authenticator: Authenticator,
        limits: GatewayLimits,
        clock: Clock,
        name: str = "worker",
        allowed_origins: tuple[str, ...] = (),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._socket = socket
        self._secret = secret
        self._name = name
        self._link: _BrokerLink | None = None
        self._requests: list[Any] = []
        self._flushing = False
        self._link_task: asyncio.Task[None] | None = None
        self._report_task: asyncio.Task[None] | None = None
        self.linked = asyncio.Event()
        self.router = ConnectionRouter(
            limits=limits, authenticator=authenticator, clock=clock, submit=self._submit
        )
        self.server = GatewayServer(self.router, clock=clock, allowed_origins=allowed_origins, tls=tls)
        self.server.sockets.engine_unreachable = True

    async def start(self, host: str, port: int) -> int:
        """Connect to the engine, then listen."""
        self._link_task = asyncio.get_running_loop().create_task(self._run_link())
        linked = asyncio.create_task(self.linked.wait())
        await asyncio.wait([linked, self._link_task], return_when=asyncio.FIRST_COMPLETED)
        if self._link_task.done():
            linked.cancel()
            self._link_task.result()  # raises the reason
        self._report_task = asyncio.get_running_loop().create_task(self._report())
        return await self.server.start(host, port, reuse_port=True)

    async def stop(self, *, drain_seconds: float = 5.0) -> None:
        await self.server.stop(drain_seconds=drain_seconds)
        self._flush()
        tasks = [task for task in (self._link_task, self._report_task) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._link is not None and self._link.transport is not None:
            self._link.transport.close()
            await self._link.lost.wait()

    # --- link ---------------------------------------------------------------------------------------------------

    async def _run_link(self) -> None:
        while True:
            try:
                await self._run_connection()
            except OSError as error:
                if isinstance(error, PermissionError):
                    raise
                log.debug(
                    "The engine cannot be reached: %s", error, extra={"action": "worker.engine_unreachable"}
                )
            await asyncio.sleep(_RETRY_SECONDS)

    async def _run_connection(self) -> None:
        """Run one link until it closes."""
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_unix_connection(lambda: _BrokerLink(self), str(self._socket))
        transport = connection.transport
        assert transport is not None
        transport.write(
            encode_batch([link.Hello(version=LINK_VERSION, secret=self._secret, name=self._name)])
        )
        try:
            await connection.welcome
        except PermissionError:
            transport.abort()
            await connection.lost.wait()
            raise
        if connection.lost.is_set():
            return
        self._requests.clear()
        self._link, self.server.sockets.engine_unreachable = connection, False
        self.linked.set()
        await connection.lost.wait()
        self._link, self.server.sockets.engine_unreachable = None, True
        self.linked.clear()
        self.router.engine_lost()

    async def _report(self) -> None:
        """Send statistics for the engine's `/metrics`."""
        while True:
            await asyncio.sleep(_REPORT_SECONDS)
            self._submit(self.server.stats())

    def _submit(self, record: Any) -> bool:
        connection = self._link
        if connection is None or connection.transport is None:
            return False
        bypass_limit = link.is_control(record) or isinstance(record, link.AckEvents)
        if connection.transport.get_write_buffer_size() > _MAX_UNSENT_BYTES and not bypass_limit:
            return False
        self._requests.append(record)
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)
        return True

    def _flush(self) -> None:
        """Send the requests of one loop iteration as one batch."""
        self._flushing = False
        requests, self._requests = self._requests, []
        if requests and self._link is not None and self._link.transport is not None:
            self._link.transport.writelines(encode_frames(requests, on_failed=self._fail_request))

    def _fail_request(self, record: Any) -> None:
        """Reply with an internal error to a request that could not be encoded."""
        payload = {"code": "internal", "message": "internal error; see the server log"}
        failed = link.RequestFailed(conn=record.conn, id=link.request_id(record), payload=payload)
        self.router.deliver([failed])

    def deliver(self, records: list[Any]) -> None:
        self.router.deliver(records)

"""Serves the HTTP API with uvicorn, with limits on connections, on the time of request heads, and on stalled readers.

uvicorn sets no limit on the time a client takes to send a request head. Clients that open sockets and send nothing, or
one byte a minute, could otherwise exhaust the file descriptors of the engine process.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

__all__ = ["HEAD_SECONDS", "MAX_CONNECTIONS", "HttpServer", "TimeLimitedH11Protocol"]

MAX_CONNECTIONS = 1_024
HEAD_SECONDS = 10.0
STALL_SECONDS = 30.0
"""Time without progress after which a client that does not read is disconnected. A stream may last forever."""


class TimeLimitedH11Protocol(H11Protocol):
    """uvicorn's protocol with a limit on head time, read stalls and connections."""

    max_connections = MAX_CONNECTIONS

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            transport.abort()
        else:
            self._start_head_timer()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._stop_head_timer()
        elif self._head_timer is None and not self.transport.is_closing():
            self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        self._stop_stall_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_stall_timer()

    def resume_writing(self) -> None:
        self._stop_stall_timer()
        super().resume_writing()

    def _start_stall_timer(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._stall_timer = self.loop.call_later(STALL_SECONDS, self._check_stalled, left)

    def _check_stalled(self, before: int) -> None:
        """Abort a client without progress. Nothing is written meanwhile, so a slow client has fewer bytes left and goes
        on.
        """
        if self.transport.get_write_buffer_size() < before:
            self._start_stall_timer()
        else:
            self.transport.abort()

    def _stop_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class _Uvicorn(uvicorn.Server):
    """Leaves signal handling to the process."""

    @contextmanager
    def capture_signals(self) -> Any:
        yield


class HttpServer:
    """Serves the app on a socket of the running event loop."""

    def __init__(self, app: Starlette, *, tls: ssl.SSLContext | None = None) -> None:
        self._app = app
        self._tls = tls
        self._server: _Uvicorn | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> int:
        config = uvicorn.Config(
            self._app,
            http=TimeLimitedH11Protocol,
            log_level="warning",
            access_log=False,
            lifespan="off",
            server_header=False,
            ws="none",
            timeout_graceful_shutdown=1,
        )
        config.load()
        config.ssl = self._tls
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=1024)
        self._server = _Uvicorn(config)
        self._task = asyncio.get_running_loop().create_task(self._server.serve(sockets=[listening]))
        return int(listening.getsockname()[1])

    async def stop(self) -> None:
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            self._server.force_exit = True
            await asyncio.gather(self._task, return_exceptions=True)

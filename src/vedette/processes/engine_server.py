"""The process with the engine, the gateway and the HTTP API: what `vedette serve` watches over."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

from vedette.console.app import HttpServer, make_app
from vedette.console.http_server import MAX_CONNECTIONS
from vedette.console.metrics import service_metrics
from vedette.console.page import ServerInfo
from vedette.engine.data_directory import Vedette
from vedette.gateway.server.access import require_auth_or_loopback
from vedette.gateway.server.tls import make_tls_context
from vedette.gateway.service import GatewayService
from vedette.processes.ports import explain_bind_errors
from vedette.processes.server_file import SERVER_FILE_NAME, ServerFile, write_server_file
from vedette.transport.unix_socket import socket_path

__all__ = ["DemoActivity", "ServeOptions", "not_ready_reason", "run_engine_server", "stop_on_signals"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    host: str
    port: int
    http_port: int
    workers: int
    """Gateway workers that listen on `port` in place of this process; 0: it listens itself."""
    directory: Path | None


async def run_engine_server(
    home: Vedette, options: ServeOptions, *, started: Callable[[ServerFile], None], stop: asyncio.Event
) -> None:
    """Serve until `stop` is set; `started` is told the ports once everything listens."""
    service = GatewayService(home, directory=options.directory)
    require_auth_or_loopback(options.host, requires_auth=service.server.sockets.requires_auth)
    ports: list[int] = []
    app = make_app(
        service.router,
        metrics_source=service_metrics(service),
        ready=lambda: not_ready_reason(service, options.workers),
        server_info=lambda: ServerInfo(
            port=ports[-1] if ports else options.port,
            secure=bool(home.settings.tls_certificate),
            databases=tuple(home.databases()),
        ),
        allowed_origins=home.settings.allowed_origins,
    )
    http = HttpServer(app, tls=make_tls_context(home.settings, MAX_CONNECTIONS))
    service.start_engine()
    try:
        async with _listening(service, http, options) as found:
            ports.append(found.port)
            started(found)
            await stop.wait()
    finally:
        await http.stop()
        await service.stop()


def not_ready_reason(service: GatewayService, workers: int) -> str | None:
    """Why clients cannot be served; None when they can."""
    if not service.engine.alive:
        return "the engine has stopped"
    if workers and not service.links.ports:
        return "no gateway worker is there"
    return service.catalog.default.read_only


@asynccontextmanager
async def _listening(
    service: GatewayService, http: HttpServer, options: ServeOptions
) -> AsyncIterator[ServerFile]:
    port = options.port
    if not options.workers:
        with explain_bind_errors(options.host, options.port, "--port"):
            port = await service.listen(options.host, options.port)
    with explain_bind_errors(options.host, options.http_port, "--http-port"):
        http_port = await http.start(options.host, options.http_port)
    directory, local, engine = options.directory, Path(), Path()
    if directory is not None:
        local, engine = socket_path(directory, "local.sock"), socket_path(directory, "engine.sock")
        await service.local.start_local(local)
        await service.links.start(engine)
        await service.open_ingest(directory)
    found = ServerFile(
        pid=os.getpid(),
        host=options.host,
        port=port,
        http_port=http_port,
        local_socket=str(local),
        engine_socket=str(engine),
    )
    if directory is not None:
        write_server_file(directory, found)
    try:
        yield found
    finally:
        if directory is not None:
            for path in (directory / SERVER_FILE_NAME, local, engine):
                path.unlink(missing_ok=True)


def stop_on_signals(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Have `stop` set by SIGTERM and SIGINT, and when the supervisor is gone."""
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    descriptor = sys.stdin.fileno()

    def gone() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            stop.set()

    loop.add_reader(descriptor, gone)


class DemoActivity(Thread):
    """Changes the demo's board every `pace_seconds`, until `stop`. The changes are logged at level info."""

    def __init__(self, home: Vedette, pace_seconds: float) -> None:
        super().__init__(name="vedette-demo", daemon=True)
        self._home, self._pace = home, pace_seconds
        self._stopped = Event()

    def run(self) -> None:
        from vedette.processes.demo import board

        with self._home.database(board.DATABASE).session() as session:
            while not self._stopped.wait(self._pace):
                log.info("Demo: %s", board.advance(session), extra={"action": "demo.advanced"})

    def stop(self) -> None:
        self._stopped.set()
        self.join()

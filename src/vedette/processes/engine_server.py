"""The engine process of `vedette serve`: engine, gateway and HTTP API of one data directory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from vedette.console.app import make_app
from vedette.console.http_server import MAX_CONNECTIONS, HttpServer
from vedette.console.metrics import service_metrics
from vedette.console.page import ServerInfo
from vedette.engine.data_directory import Vedette
from vedette.gateway.server.access import require_auth_or_loopback
from vedette.gateway.server.tls import make_tls_context
from vedette.gateway.service import GatewayService
from vedette.processes.ports import explain_bind_errors
from vedette.processes.server_file import SERVER_FILE_NAME, ServerFile, write_server_file
from vedette.transport.unix_socket import socket_path

__all__ = ["ServeOptions", "not_ready_reason", "run_engine_server"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Addresses and directory of one server."""

    host: str
    port: int
    http_port: int
    workers: int
    """Number of gateway workers that listen on `port`; with 0 the engine process listens itself."""
    directory: Path | None


async def run_engine_server(
    vedette: Vedette, options: ServeOptions, *, started: Callable[[ServerFile], None], stop: asyncio.Event
) -> None:
    """Serve until `stop` is set. `started` is called with the addresses once all sockets listen."""
    service = GatewayService(vedette, directory=options.directory)
    require_auth_or_loopback(options.host, requires_auth=service.server.sockets.requires_auth)
    ports: list[int] = []
    app = make_app(
        service.router,
        metrics_source=service_metrics(service),
        ready=lambda: not_ready_reason(service, options.workers),
        server_info=lambda: ServerInfo(
            port=ports[-1] if ports else options.port,
            secure=bool(vedette.settings.tls_certificate),
            databases=tuple(vedette.databases()),
        ),
        allowed_origins=vedette.settings.allowed_origins,
    )
    http = HttpServer(app, tls=make_tls_context(vedette.settings, MAX_CONNECTIONS))
    service.start_engine()
    try:
        async with _listening(service, http, options) as server_file:
            ports.append(server_file.port)
            started(server_file)
            await stop.wait()
    finally:
        await http.stop()
        await service.stop()


def not_ready_reason(service: GatewayService, workers: int) -> str | None:
    """Return why clients cannot be served, or None if they can."""
    if not service.engine.alive:
        return "the engine has stopped"
    if workers and not service.links.ports:
        return "no gateway worker is connected"
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
    server_file = ServerFile(
        pid=os.getpid(),
        host=options.host,
        port=port,
        http_port=http_port,
        local_socket=str(local),
        engine_socket=str(engine),
    )
    if directory is not None:
        write_server_file(directory, server_file)
    try:
        yield server_file
    finally:
        if directory is not None:
            for path in (directory / SERVER_FILE_NAME, local, engine):
                path.unlink(missing_ok=True)

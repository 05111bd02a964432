"""`vedette gateway`: workers that hold the connections of clients, beside the engine."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vedette.cli.errors import CommandFailed
from vedette.cli.options import DEFAULT_DATA, DataOption, LogFormatOption, LogLevelOption, directory_of
from vedette.processes.logging_setup import (
    LogFormat,
    LogLevel,
    LogOptions,
    log_loop_exceptions,
    process_logging,
)

if TYPE_CHECKING:
    from vedette.processes.supervisor import Child

__all__ = ["gateway", "worker_child"]


def gateway(
    data: DataOption = DEFAULT_DATA,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=1, max=65535, help="The port that all workers share.")
    ] = 7707,
    workers: Annotated[
        int,
        typer.Option(
            "--workers", metavar="N", min=1, max=256, help="How many; one for each core, or 18,000 clients."
        ),
    ] = 1,
    log_level: LogLevelOption = LogLevel.WARNING,
    log_format: LogFormatOption = LogFormat.TEXT,
    role: Annotated[str, typer.Option("--role", hidden=True)] = "supervisor",
) -> None:
    """Run gateway workers for the engine of a data directory (`vedette serve` on the same machine).

    All workers share one port (SO_REUSEPORT) and hold nothing that matters: when one ends, its clients connect to
    another and go on where they were. SIGHUP renews them one after the other.

    \b
    Examples:
      vedette gateway --workers 2 --port 7709
    """
    logs = LogOptions(level=log_level, format=log_format)
    if role.startswith("worker"):
        with process_logging(logs, process=f"gateway-{role}"):
            _worker(data, host, port, role)
        return
    from vedette.cli.output.display import TableDisplay
    from vedette.clock import SystemClock
    from vedette.processes.ports import check_free
    from vedette.processes.signals import StopSignal
    from vedette.processes.supervisor import Supervisor

    _engine_socket(data)
    check_free(host, port, "--port")
    children = [worker_child(data, host, port, number, logs) for number in range(workers)]
    with process_logging(logs, process="gateway", announce=data), StopSignal() as stop:
        count = "1 gateway worker" if workers == 1 else f"{workers} gateway workers"
        TableDisplay().out.print(f"{count} on {host}:{port}; Ctrl-C ends.")
        code = Supervisor(children, clock=SystemClock()).run(stop)
    raise typer.Exit(code)


def worker_child(data: str, host: str, port: int, number: int, logs: LogOptions) -> Child:
    """One worker, for a supervisor. It is ready when it has written down its process id."""
    from vedette.processes.supervisor import Child

    role = f"worker-{number}"
    options = ["--data", data, "--host", host, "--port", str(port), "--role", role, *logs.arguments()]
    command = [sys.executable, "-m", "vedette", "gateway", *options]

    def is_ready(pid: int) -> bool:
        mark = _mark(data, port, role)
        return mark is not None and mark.is_file() and mark.read_text().strip() == str(pid)

    return Child(f"gateway {role}", command, is_ready)


def _mark(data: str, port: int, role: str) -> Path | None:
    directory = directory_of(data)
    return directory / f"gateway-{port}-{role}.pid" if directory is not None else None


def _engine_socket(data: str) -> Path:
    from vedette.processes.server_file import read_server_file

    directory = directory_of(data)
    if directory is None:
        raise CommandFailed("Gateway workers need a data directory: that is where they find the engine.")
    found = read_server_file(directory)
    if found is None:
        raise CommandFailed(f"No server runs on {data}: start `vedette serve --data {data}` first.")
    return Path(found.engine_socket)


def _worker(data: str, host: str, port: int, role: str) -> None:
    """The child: one worker."""
    import uvloop

    from vedette.clock import SystemClock
    from vedette.gateway.limits import GatewayLimits
    from vedette.gateway.server.auth import TokenAuthority, authority_of
    from vedette.gateway.server.listener import most_sockets
    from vedette.gateway.server.tls import tls_of
    from vedette.gateway.service import keep_keys_fresh
    from vedette.gateway.worker import GatewayWorker
    from vedette.processes.engine_server import stop_asked
    from vedette.processes.ports import taken_port
    from vedette.settings import load_settings
    from vedette.transport.secret import directory_secret

    directory, clock = directory_of(data), SystemClock()
    settings = load_settings(directory, os.environ)
    socket, authority = _engine_socket(data), authority_of(settings, clock)

    async def main() -> None:
        stop = asyncio.Event()
        log_loop_exceptions(asyncio.get_running_loop())
        stop_asked(asyncio.get_running_loop(), stop)
        limits = GatewayLimits.of(settings)
        worker = GatewayWorker(
            socket=socket,
            secret=directory_secret(directory),
            authority=authority,
            limits=limits,
            clock=clock,
            name=f"{role}:{port}",
            allowed_origins=settings.allowed_origins,
            tls=tls_of(settings, most_sockets(limits.max_connections)),
        )
        keys = (
            asyncio.create_task(keep_keys_fresh(authority)) if isinstance(authority, TokenAuthority) else None
        )
        with taken_port(host, port, "--port"):
            await worker.start(host, port)
        _ready(_mark(data, port, role))
        await stop.wait()
        _gone(_mark(data, port, role))
        if keys is not None:
            keys.cancel()
        await worker.stop()

    uvloop.run(main())


def _ready(mark: Path | None) -> None:
    if mark is not None:
        mark.write_text(f"{os.getpid()}\n")


def _gone(mark: Path | None) -> None:
    if mark is not None:
        mark.unlink(missing_ok=True)

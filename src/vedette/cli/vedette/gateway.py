"""`vedette gateway`: workers that hold the connections of clients, beside the engine."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vedette.cli.errors import CommandFailed
from vedette.cli.options import DEFAULT_DATA, DataOption, LogFormatOption, LogLevelOption, local_directory
from vedette.processes.logging_setup import (
    LogFormat,
    LogLevel,
    LogOptions,
    log_loop_exceptions,
    process_logging,
)

if TYPE_CHECKING:
    from vedette.processes.supervisor import ChildSpec

__all__ = ["gateway", "gateway_worker_spec"]


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
    from vedette.processes.ports import require_free_port
    from vedette.processes.signals import StopSignal
    from vedette.processes.supervisor import Supervisor

    _engine_socket(data)
    require_free_port(host, port, "--port")
    children = [gateway_worker_spec(data, host, port, number, logs) for number in range(workers)]
    with process_logging(logs, process="gateway", announce=data), StopSignal() as stop:
        count = "1 gateway worker" if workers == 1 else f"{workers} gateway workers"
        TableDisplay().out.print(f"{count} on {host}:{port}; Ctrl-C ends.")
        code = Supervisor(children, clock=SystemClock()).run(stop)
    raise typer.Exit(code)


def gateway_worker_spec(data: str, host: str, port: int, number: int, logs: LogOptions) -> ChildSpec:
    """One worker, for a supervisor. It is ready when it has written down its process id."""
    from vedette.processes.supervisor import ChildSpec

    role = f"worker-{number}"
    options = ["--data", data, "--host", host, "--port", str(port), "--role", role, *logs.arguments()]
    command = [sys.executable, "-m", "vedette", "gateway", *options]

    def is_ready(pid: int) -> bool:
        mark = pid_file(data, port, role)
        return mark is not None and mark.is_file() and mark.read_text().strip() == str(pid)

    return ChildSpec(f"gateway {role}", command, is_ready)


def pid_file(data: str, port: int, role: str) -> Path | None:
    directory = local_directory(data)
    return directory / f"gateway-{port}-{role}.pid" if directory is not None else None


def _engine_socket(data: str) -> Path:
    from vedette.processes.server_file import read_server_file

    directory = local_directory(data)
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
    from vedette.gateway.server.auth import JwtAuthenticator, make_authenticator
    from vedette.gateway.server.jwk_set import refresh_periodically
    from vedette.gateway.server.sockets import max_sockets
    from vedette.gateway.server.tls import make_tls_context
    from vedette.gateway.worker import GatewayWorker
    from vedette.processes.engine_server import stop_on_signals
    from vedette.processes.ports import explain_bind_errors
    from vedette.settings import load_settings
    from vedette.transport.secret import load_or_create_secret

    directory, clock = local_directory(data), SystemClock()
    settings = load_settings(directory, os.environ)
    socket, authority = _engine_socket(data), make_authenticator(settings, clock)

    async def main() -> None:
        stop = asyncio.Event()
        log_loop_exceptions(asyncio.get_running_loop())
        stop_on_signals(asyncio.get_running_loop(), stop)
        limits = GatewayLimits.from_settings(settings)
        worker = GatewayWorker(
            socket=socket,
            secret=load_or_create_secret(directory),
            authority=authority,
            limits=limits,
            clock=clock,
            name=f"{role}:{port}",
            allowed_origins=settings.allowed_origins,
            tls=make_tls_context(settings, max_sockets(limits.max_connections)),
        )
        keys = (
            asyncio.create_task(refresh_periodically(authority.keys))
            if isinstance(authority, JwtAuthenticator)
            else None
        )
        with explain_bind_errors(host, port, "--port"):
            await worker.start(host, port)
        write_pid_file(pid_file(data, port, role))
        await stop.wait()
        remove_pid_file(pid_file(data, port, role))
        if keys is not None:
            keys.cancel()
        await worker.stop()

    uvloop.run(main())


def write_pid_file(mark: Path | None) -> None:
    if mark is not None:
        mark.write_text(f"{os.getpid()}\n")


def remove_pid_file(mark: Path | None) -> None:
    if mark is not None:
        mark.unlink(missing_ok=True)

"""A gateway worker: a process that holds client connections beside the engine.

All workers of a server share one port (SO_REUSEPORT). A worker keeps no durable state: when it ends, its clients
connect to another worker and resume.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from vedette.clock import SystemClock
from vedette.gateway.limits import GatewayLimits
from vedette.gateway.server.auth import JwtAuthenticator, make_authenticator
from vedette.gateway.server.jwk_set import refresh_periodically
from vedette.gateway.server.sockets import max_sockets
from vedette.gateway.server.tls import make_tls_context
from vedette.gateway.worker import GatewayWorker
from vedette.processes.logging_setup import LogOptions, log_loop_exceptions
from vedette.processes.ports import explain_bind_errors
from vedette.processes.server_file import read_server_file
from vedette.processes.signals import stop_on_signals
from vedette.processes.startup_error import StartupError
from vedette.processes.supervisor import ChildSpec
from vedette.settings import load_settings
from vedette.transport.secret import load_or_create_secret

__all__ = ["find_engine_socket", "gateway_worker_spec", "run_gateway_worker"]


def gateway_worker_spec(directory: Path, host: str, port: int, number: int, logs: LogOptions) -> ChildSpec:
    """Describe one worker for a supervisor. The worker is ready when it has written its pid file."""
    role = f"worker-{number}"
    options = ["--data", str(directory), "--host", host, "--port", str(port), "--role", role]
    command = [sys.executable, "-m", "vedette", "gateway", *options, *logs.arguments()]
    pid_file = _pid_file(directory, port, role)

    def is_ready(pid: int) -> bool:
        return pid_file.is_file() and pid_file.read_text().strip() == str(pid)

    return ChildSpec(name=f"gateway {role}", command=command, is_ready=is_ready)


def find_engine_socket(directory: Path) -> Path:
    """Return the socket where the running server of a data directory accepts workers, or raise StartupError."""
    server = read_server_file(directory)
    if server is None:
        raise StartupError(f"No server runs on {directory}: start `vedette serve --data {directory}` first.")
    return Path(server.engine_socket)


async def run_gateway_worker(directory: Path, host: str, port: int, role: str) -> None:
    """Serve clients until a stop request. `role` distinguishes the workers of one port."""
    settings, clock = load_settings(directory, os.environ), SystemClock()
    authenticator, limits = make_authenticator(settings, clock), GatewayLimits.from_settings(settings)
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    log_loop_exceptions(loop)
    stop_on_signals(loop, stop)
    worker = GatewayWorker(
        socket=find_engine_socket(directory),
        secret=load_or_create_secret(directory),
        authenticator=authenticator,
        limits=limits,
        clock=clock,
        name=f"{role}:{port}",
        allowed_origins=settings.allowed_origins,
        tls=make_tls_context(settings, max_sockets(limits.max_connections)),
    )
    key_refresh = None
    if isinstance(authenticator, JwtAuthenticator):
        key_refresh = asyncio.create_task(refresh_periodically(authenticator.keys))
    with explain_bind_errors(host, port, "--port"):
        await worker.start(host, port)
    pid_file = _pid_file(directory, port, role)
    pid_file.write_text(f"{os.getpid()}\n")
    await stop.wait()
    pid_file.unlink(missing_ok=True)
    if key_refresh is not None:
        key_refresh.cancel()
    await worker.stop()


def _pid_file(directory: Path, port: int, role: str) -> Path:
    return directory / f"gateway-{port}-{role}.pid"

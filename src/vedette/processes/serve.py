"""The processes of `vedette serve`, as the supervisor starts them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vedette.processes.folder_daemon import folder_daemon_spec
from vedette.processes.gateway_worker import gateway_worker_spec
from vedette.processes.logging_setup import LogOptions
from vedette.processes.pipeline_runner import pipeline_spec
from vedette.processes.server_file import read_server_file
from vedette.processes.startup_error import StartupError
from vedette.processes.supervisor import ChildSpec

__all__ = ["ServeRequest", "child_specs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeRequest:
    """What the user asked `vedette serve` to run."""

    data: str
    directory: Path | None
    """None for a store without a directory: PostgreSQL or memory. Only the engine process runs then."""
    host: str
    port: int
    http_port: int
    workers: int
    pipeline: bool
    demo_interval_seconds: float | None
    logs: LogOptions


def child_specs(request: ServeRequest, announce: Callable[[str], object]) -> tuple[ChildSpec, ...]:
    """Return the children in start order. `announce` prints the progress of slow ones."""
    directory, logs = request.directory, request.logs
    if request.workers and directory is None:
        raise StartupError(f"Gateway workers need a data directory; {request.data} is not one.")
    specs = [_engine_spec(request)]
    if directory is not None:
        specs += [
            gateway_worker_spec(directory, request.host, request.port, number, logs)
            for number in range(request.workers)
        ]
        specs.append(folder_daemon_spec(directory, logs))
        if request.pipeline:
            specs.append(pipeline_spec(request.data, directory, announce, logs))
    return tuple(specs)


def _engine_spec(request: ServeRequest) -> ChildSpec:
    options = ["--data", request.data, "--host", request.host, "--port", str(request.port)]
    options += ["--http-port", str(request.http_port), "--workers", str(request.workers)]
    if request.demo_interval_seconds is not None:
        options += ["--demo", "--pace", str(request.demo_interval_seconds)]
    if not request.pipeline:
        options.append("--no-pipeline")
    command = [sys.executable, "-m", "vedette", "serve", "--role", "engine", *options]
    directory = request.directory

    def is_ready(pid: int) -> bool:
        if directory is None:
            return True
        server = read_server_file(directory)
        return server is not None and server.pid == pid

    return ChildSpec(
        name="engine", command=[*command, *request.logs.arguments()], is_ready=is_ready, primary=True
    )

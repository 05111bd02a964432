"""`vedette gateway`: gateway workers for a running engine."""

from __future__ import annotations

from typing import Annotated

import typer

from vedette.cli.errors import CommandFailed
from vedette.cli.options import DEFAULT_DATA, DataOption, LogFormatOption, LogLevelOption, local_directory
from vedette.processes.logging_setup import LogFormat, LogLevel, LogOptions, process_logging

__all__ = ["gateway"]


def gateway(
    data: DataOption = DEFAULT_DATA,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=1, max=65535, help="The port that all workers share.")
    ] = 7707,
    workers: Annotated[
        int,
        typer.Option(
            "--workers",
            metavar="N",
            min=1,
            max=256,
            help="Number of workers: one per core, or per 18,000 clients.",
        ),
    ] = 1,
    log_level: LogLevelOption = LogLevel.WARNING,
    log_format: LogFormatOption = LogFormat.TEXT,
    role: Annotated[str, typer.Option("--role", hidden=True)] = "supervisor",
) -> None:
    """Run gateway workers for the engine of a data directory (`vedette serve` on the same machine).

    All workers share one port (SO_REUSEPORT) and keep no durable state: when one ends, its clients connect to another
    and resume. SIGHUP restarts the workers one at a time.

    \b
    Examples:
      vedette gateway --workers 2 --port 7709
    """
    logs = LogOptions(level=log_level, format=log_format)
    directory = local_directory(data)
    if directory is None:
        raise CommandFailed(
            f"Gateway workers need a data directory, where they find the engine; {data} is not one."
        )
    if role.startswith("worker"):
        import uvloop

        from vedette.processes.gateway_worker import run_gateway_worker

        with process_logging(logs, process=f"gateway-{role}"):
            uvloop.run(run_gateway_worker(directory, host, port, role))
        return
    from vedette.cli.output.display import TableDisplay
    from vedette.clock import SystemClock
    from vedette.processes.gateway_worker import find_engine_socket, gateway_worker_spec
    from vedette.processes.ports import require_free_port
    from vedette.processes.signals import StopSignal
    from vedette.processes.supervisor import Supervisor

    find_engine_socket(directory)
    require_free_port(host, port, "--port")
    specs = [gateway_worker_spec(directory, host, port, number, logs) for number in range(workers)]
    with process_logging(logs, process="gateway", announce=data), StopSignal() as stop:
        count = "1 gateway worker" if workers == 1 else f"{workers} gateway workers"
        TableDisplay().out.print(f"{count} on {host}:{port}. Ctrl-C stops them.")
        code = Supervisor(specs, clock=SystemClock()).run(stop)
    raise typer.Exit(code)

"""`vedette serve`: engine, gateway and HTTP API of one data directory."""

from __future__ import annotations

import asyncio
import sys
from socket import gethostname
from typing import TYPE_CHECKING, Annotated

import typer

from vedette.cli.options import DEFAULT_DATA, DataOption, LogFormatOption, LogLevelOption, local_directory
from vedette.extras import missing_packages
from vedette.processes.logging_setup import (
    LogFormat,
    LogLevel,
    LogOptions,
    log_loop_exceptions,
    process_logging,
)

if TYPE_CHECKING:
    from vedette.cli.vedette.serve_screen import ScreenFacts
    from vedette.engine.data_directory import Vedette
    from vedette.processes.server_file import ServerFile

__all__ = ["reachable", "serve"]

HostOption = Annotated[
    str,
    typer.Option("--host", metavar="ADDRESS", help="Where to listen; other than loopback needs auth_keys."),
]


def serve(
    data: DataOption = DEFAULT_DATA,
    host: HostOption = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="WebSocket; 0 chooses a free one.")
    ] = 7707,
    http_port: Annotated[
        int,
        typer.Option("--http-port", metavar="N", min=0, max=65535, help="HTTP API; 0 chooses a free one."),
    ] = 7708,
    workers: Annotated[
        int,
        typer.Option(
            "--workers", metavar="N", min=0, max=256, help="Gateway workers; 0: the engine listens itself."
        ),
    ] = 0,
    demo: Annotated[bool, typer.Option("--demo", help="Fill a database `demo` and let it live.")] = False,
    pace: Annotated[
        float,
        typer.Option("--pace", metavar="SECONDS", min=0.05, help="How often something happens in the demo."),
    ] = 3.0,
    pipeline: Annotated[
        bool,
        typer.Option(
            "--pipeline/--no-pipeline",
            help="Run the Spark pipeline here when there are sources (needs Java).",
        ),
    ] = True,
    log_level: LogLevelOption = LogLevel.WARNING,
    log_format: LogFormatOption = LogFormat.TEXT,
    role: Annotated[str, typer.Option("--role", hidden=True)] = "supervisor",
) -> None:
    """Serve a data directory until Ctrl-C or SIGTERM.

    Clients connect to ws://HOST:PORT (vedette.connect), browsers and curl to http://HOST:HTTP_PORT; the commands of
    this machine (shell, run, watch, define) go through the running server by themselves. A part that dies is started
    again while the others go on; SIGHUP renews the workers one after the other.

    Folders that are watched (`wqm watch add`) are followed by a part of their own, as soon as there is one.

    With --demo there is something to see: a project board in a database of its own, `demo`, worked on every few
    seconds, and a folder of notes that is watched, to be searched with `wqm search`.

    \b
    Examples:
      vedette serve --demo
      vedette serve --data /var/lib/vedette --workers 2
    """
    logs = LogOptions(level=log_level, format=log_format)
    if role == "engine":
        with process_logging(logs, process="engine"):
            _engine(data, host, port, http_port, workers, pace if demo else None, pipeline=pipeline)
        return
    from vedette.cli.output.display import TableDisplay
    from vedette.cli.vedette.gateway import gateway_worker_spec
    from vedette.clock import SystemClock
    from vedette.processes.folder_daemon import folder_daemon_spec
    from vedette.processes.pipeline_runner import pipeline_spec
    from vedette.processes.ports import require_free_port
    from vedette.processes.server_file import read_server_file
    from vedette.processes.signals import StopSignal
    from vedette.processes.supervisor import ChildSpec, Supervisor

    if workers:
        require_free_port(host, port, "--port")
    directory = local_directory(data)
    options = ["--data", data, "--host", host, "--port", str(port), "--http-port", str(http_port)]
    options += ["--workers", str(workers), "--pace", str(pace), *(["--demo"] if demo else [])]
    options += [*([] if pipeline else ["--no-pipeline"]), *logs.arguments()]
    command = [sys.executable, "-m", "vedette", "serve", "--role", "engine", *options]

    def is_ready(pid: int) -> bool:
        found = read_server_file(directory) if directory is not None else None
        return directory is None or (found is not None and found.pid == pid)

    children = [ChildSpec("engine", command, is_ready, primary=True)]
    children += [gateway_worker_spec(data, host, port, number, logs) for number in range(workers)]
    if directory is not None:
        children.append(folder_daemon_spec(data, directory, logs))
    if pipeline and directory is not None:
        children.append(pipeline_spec(data, directory, TableDisplay().out.print, logs))
    with process_logging(logs, process="serve", announce=data), StopSignal() as stop:
        code = Supervisor(children, clock=SystemClock()).run(stop)
    raise typer.Exit(code)


def _engine(
    data: str, host: str, port: int, http_port: int, workers: int, demo_pace: float | None, *, pipeline: bool
) -> None:
    """The child: what the supervisor watches over."""
    import uvloop

    from vedette.cli.data_access import open_directory
    from vedette.cli.output.display import TableDisplay
    from vedette.cli.vedette.serve_screen import screen_lines
    from vedette.processes.engine_server import DemoActivity, ServeOptions, run_engine_server, stop_on_signals

    display = TableDisplay()
    options = ServeOptions(
        host=host, port=port, http_port=http_port, workers=workers, directory=local_directory(data)
    )
    with open_directory(data, display=display, alone=True) as home:
        activity = DemoActivity(home, demo_pace) if demo_pace is not None else None

        async def main() -> None:
            stop = asyncio.Event()
            log_loop_exceptions(asyncio.get_running_loop())
            stop_on_signals(asyncio.get_running_loop(), stop)
            await run_engine_server(home, options, started=started, stop=stop)

        def started(found: ServerFile) -> None:
            for line in screen_lines(_screen_facts(home, found, data, demo_pace, pipeline=pipeline)):
                display.out.print(line, soft_wrap=True, style="bold" if line.startswith("  ") else "")
            if activity is not None:
                activity.start()

        try:
            uvloop.run(main())
        finally:
            if activity is not None and activity.is_alive():
                activity.stop()
    display.out.print(f"Stopped. {data} was closed cleanly.")


def _screen_facts(
    home: Vedette, found: ServerFile, data: str, demo_seconds: float | None, *, pipeline: bool
) -> ScreenFacts:
    """Prepare the demo, if there is one, and return what the screen shows."""
    from vedette.cli.vedette.serve_screen import ScreenFacts

    demo_folder, demo_source, directory = None, False, local_directory(data)
    if demo_seconds is not None:
        from vedette.processes.demo import board, files

        board.prepare(home.database(board.DATABASE))
        if directory is not None and not missing_packages("files"):
            demo_folder = str(files.watch_samples(directory))
        if directory is not None and pipeline and not missing_packages("pipeline"):
            board.add_source(directory)
            demo_source = True
    secure, host = bool(home.settings.tls_certificate), reachable(found.host)
    return ScreenFacts(
        data=data,
        databases=home.databases(),
        websocket_url=f"{'wss' if secure else 'ws'}://{host}:{found.port}",
        http_url=f"{'https' if secure else 'http'}://{host}:{found.http_port}",
        requires_token=bool(home.settings.auth_keys),
        demo_seconds=demo_seconds,
        demo_folder=demo_folder,
        demo_source=demo_source,
    )


def reachable(host: str) -> str:
    """The name to connect to where a server listens on this address: every address of a machine has none."""
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not listened on
        return gethostname()
    return f"[{host}]" if ":" in host else host

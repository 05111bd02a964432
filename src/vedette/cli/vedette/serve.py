"""`vedette serve`: engine, gateway and HTTP API of one data directory."""

from __future__ import annotations

import asyncio
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
    from vedette.processes.demo.activity import DemoActivity
    from vedette.processes.server_file import ServerFile

__all__ = ["connect_host", "serve"]

HostOption = Annotated[
    str,
    typer.Option(
        "--host",
        metavar="ADDRESS",
        help="Address to listen on; other than loopback requires the setting auth_keys.",
    ),
]


def serve(
    data: DataOption = DEFAULT_DATA,
    host: HostOption = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option("--port", metavar="N", min=0, max=65535, help="WebSocket port; 0 chooses a free one."),
    ] = 7707,
    http_port: Annotated[
        int,
        typer.Option("--http-port", metavar="N", min=0, max=65535, help="HTTP port; 0 chooses a free one."),
    ] = 7708,
    workers: Annotated[
        int,
        typer.Option(
            "--workers",
            metavar="N",
            min=0,
            max=256,
            help="Gateway worker processes; with 0 the engine process listens itself.",
        ),
    ] = 0,
    demo: Annotated[
        bool, typer.Option("--demo", help="Create a database `demo` that changes every few seconds.")
    ] = False,
    pace: Annotated[
        float,
        typer.Option("--pace", metavar="SECONDS", min=0.05, help="Seconds between two changes of the demo."),
    ] = 3.0,
    pipeline: Annotated[
        bool,
        typer.Option(
            "--pipeline/--no-pipeline",
            help="Run the Spark pipeline when there are sources (requires Java).",
        ),
    ] = True,
    log_level: LogLevelOption = LogLevel.WARNING,
    log_format: LogFormatOption = LogFormat.TEXT,
    role: Annotated[str, typer.Option("--role", hidden=True)] = "supervisor",
) -> None:
    """Serve a data directory until Ctrl-C or SIGTERM.

    Clients connect to ws://HOST:PORT (vedette.connect), browsers and curl to http://HOST:HTTP_PORT. Commands on this
    machine (shell, run, watch, define) use the running server automatically. A process that fails is restarted while
    the others continue. SIGHUP restarts the gateway workers one at a time.

    If folders are watched (`wqm watch add`), the server also runs the folder daemon.

    With --demo the server creates a database `demo` with a project board that changes every few seconds, and watches a
    folder of notes that `wqm search` can search.

    \b
    Examples:
      vedette serve --demo
      vedette serve --data /var/lib/vedette --workers 2
    """
    logs = LogOptions(level=log_level, format=log_format)
    if role == "engine":
        with process_logging(logs, process="engine"):
            _run_engine(data, host, port, http_port, workers, pace if demo else None, pipeline=pipeline)
        return
    from vedette.cli.output.display import TableDisplay
    from vedette.clock import SystemClock
    from vedette.processes.ports import require_free_port
    from vedette.processes.serve import ServeRequest, child_specs
    from vedette.processes.signals import StopSignal
    from vedette.processes.supervisor import Supervisor

    if workers:
        require_free_port(host, port, "--port")
    request = ServeRequest(
        data=data,
        directory=local_directory(data),
        host=host,
        port=port,
        http_port=http_port,
        workers=workers,
        pipeline=pipeline,
        demo_interval_seconds=pace if demo else None,
        logs=logs,
    )
    specs = child_specs(request, TableDisplay().out.print)
    with process_logging(logs, process="serve", announce=data), StopSignal() as stop:
        code = Supervisor(specs, clock=SystemClock()).run(stop)
    raise typer.Exit(code)


def _run_engine(
    data: str,
    host: str,
    port: int,
    http_port: int,
    workers: int,
    demo_seconds: float | None,
    *,
    pipeline: bool,
) -> None:
    """Run the engine process, the first child of the supervisor."""
    import uvloop

    from vedette.cli.data_access import open_directory
    from vedette.cli.output.display import TableDisplay
    from vedette.cli.vedette.serve_screen import screen_lines
    from vedette.processes.engine_server import ServeOptions, run_engine_server
    from vedette.processes.signals import stop_on_signals

    display = TableDisplay()
    options = ServeOptions(
        host=host, port=port, http_port=http_port, workers=workers, directory=local_directory(data)
    )
    with open_directory(data, display=display, direct=True) as vedette:
        activity = _demo_activity(vedette, demo_seconds)

        async def main() -> None:
            stop = asyncio.Event()
            log_loop_exceptions(asyncio.get_running_loop())
            stop_on_signals(asyncio.get_running_loop(), stop)
            await run_engine_server(vedette, options, started=started, stop=stop)

        def started(server: ServerFile) -> None:
            facts = _screen_facts(vedette, server, data, demo_seconds, pipeline=pipeline)
            for line in screen_lines(facts):
                display.out.print(line, soft_wrap=True, style="bold" if line.startswith("  ") else "")
            if activity is not None:
                activity.start()

        try:
            uvloop.run(main())
        finally:
            if activity is not None and activity.is_alive():
                activity.stop()
    display.out.print(f"Stopped. {data} was closed cleanly.")


def _demo_activity(vedette: Vedette, interval_seconds: float | None) -> DemoActivity | None:
    if interval_seconds is None:
        return None
    from vedette.processes.demo.activity import DemoActivity

    return DemoActivity(vedette, interval_seconds)


def _screen_facts(
    vedette: Vedette, server: ServerFile, data: str, demo_seconds: float | None, *, pipeline: bool
) -> ScreenFacts:
    """Prepare the demo, if requested, and return what the start screen shows."""
    from vedette.cli.vedette.serve_screen import ScreenFacts

    demo_folder, demo_source, directory = None, False, local_directory(data)
    if demo_seconds is not None:
        from vedette.processes.demo import board, files

        board.prepare(vedette.database(board.DATABASE))
        if directory is not None and not missing_packages("files"):
            demo_folder = str(files.watch_samples(directory))
        if directory is not None and pipeline and not missing_packages("pipeline"):
            board.add_source(directory)
            demo_source = True
    secure, host = bool(vedette.settings.tls_certificate), connect_host(server.host)
    return ScreenFacts(
        data=data,
        databases=vedette.databases(),
        websocket_url=f"{'wss' if secure else 'ws'}://{host}:{server.port}",
        http_url=f"{'https' if secure else 'http'}://{host}:{server.http_port}",
        requires_token=bool(vedette.settings.auth_keys),
        demo_seconds=demo_seconds,
        demo_folder=demo_folder,
        demo_source=demo_source,
    )


def connect_host(host: str) -> str:
    """Return the host name to connect to. A server on all addresses is reached by the name of the machine."""
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not listened on
        return gethostname()
    return f"[{host}]" if ":" in host else host

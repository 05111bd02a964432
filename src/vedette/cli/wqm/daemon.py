"""`wqm daemon`: run the folder daemon in the foreground."""

from __future__ import annotations

from typing import Annotated

import typer

from vedette.cli.options import DEFAULT_DATA, DataOption, LogFormatOption, LogLevelOption
from vedette.cli.wqm.access import require_directory
from vedette.extras import require_extra
from vedette.processes.logging_setup import LogFormat, LogLevel, LogOptions, process_logging

__all__ = ["daemon"]


def daemon(
    data: DataOption = DEFAULT_DATA,
    log_level: LogLevelOption = LogLevel.WARNING,
    log_format: LogFormatOption = LogFormat.TEXT,
    supervised: Annotated[bool, typer.Option("--supervised", hidden=True)] = False,
) -> None:
    """Watch the folders and ingest changed files, in the foreground, until Ctrl-C or SIGTERM.

    `vedette serve` runs a daemon itself. Searches and other commands work while the daemon runs.

    \b
    Examples:
      wqm watch add ~/notes --collection notes
      wqm daemon
    """
    from vedette.processes.folder_daemon import run_folder_daemon
    from vedette.processes.signals import StopSignal, terminate_with_supervisor

    require_extra("files", "`wqm daemon`")
    logs = LogOptions(level=log_level, format=log_format)
    with process_logging(logs, process="folder-daemon", announce=None if supervised else data):
        directory = require_directory(data, make=True)
        if supervised:
            terminate_with_supervisor()

        def started() -> None:
            if not supervised:
                print(f"Watching the folders of {directory}. Ctrl-C stops the daemon.", flush=True)

        with StopSignal() as stop:
            run_folder_daemon(directory, stop, started=started)
    if not supervised:
        print("Stopped. Unfinished files stay in the queue.")

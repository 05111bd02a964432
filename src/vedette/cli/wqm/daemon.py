"""`wqm daemon`: watch the folders, until told to stop."""

from __future__ import annotations

import logging
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import TYPE_CHECKING, Annotated

import typer

from vedette.cli.options import DEFAULT_DATA, DataOption, LogFormatOption, LogLevelOption
from vedette.cli.wqm.access import clock_of, require_directory
from vedette.errors import IngestError, StoreError
from vedette.extras import require_extra
from vedette.processes.logging_setup import LogFormat, LogLevel, LogOptions, process_logging
from vedette.processes.supervisor import RestartBackoff

if TYPE_CHECKING:
    from pathlib import Path

    from vedette.processes.signals import StopSignal
    from vedette.search.folders.daemon import FolderDaemon

log = logging.getLogger(__name__)

__all__ = ["daemon"]

_LOOK_SECONDS = 0.5


def daemon(
    data: DataOption = DEFAULT_DATA,
    log_level: LogLevelOption = LogLevel.WARNING,
    log_format: LogFormatOption = LogFormat.TEXT,
    supervised: Annotated[bool, typer.Option("--supervised", hidden=True)] = False,
) -> None:
    """Watch the folders and take up what changes, in the foreground, until Ctrl-C or SIGTERM.

    `vedette serve` runs one by itself. Searches and other commands work beside it.

    \b
    Examples:
      wqm watch add ~/notes --collection notes
      wqm daemon
    """
    from vedette.processes.signals import StopSignal

    require_extra("files", "`wqm daemon`")
    logs = LogOptions(level=log_level, format=log_format)
    with process_logging(logs, process="folder-daemon", announce=None if supervised else data):
        directory = require_directory(data, make=True)
        if supervised:
            _stop_with_the_supervisor()
        with StopSignal() as stop:
            _run_until_stopped(directory, data, stop, supervised=supervised)
    if not supervised:
        print("Stopped. Unfinished files stay in the queue.")


def _run_until_stopped(directory: Path, data: str, stop: StopSignal, *, supervised: bool) -> None:
    """Run the daemon; open everything again after a failure of the disk or the vector store."""
    from vedette.processes.folder_daemon import open_folder_daemon

    restarts = RestartBackoff(initial_delay_seconds=1.0, max_delay_seconds=30.0)
    has_begun = False
    while True:
        began = clock_of().monotonic()
        try:
            with open_folder_daemon(directory, data) as made:
                if not supervised and not has_begun:
                    print(f"Watching the folders of {directory}. Ctrl-C ends it.", flush=True)
                has_begun = True
                _run(made, stop)
            return
        except (StoreError, IngestError) as error:
            # A full disk, for instance: open stores are unusable, and opening them again fails until there is space.
            if not has_begun:
                raise
            failure = error
        wait = restarts.next_delay(clock_of().monotonic() - began)
        log.error(
            "The folder daemon failed and restarts in %.0f s: %s",
            wait,
            failure,
            extra={"action": "daemon.restarting", "data": str(directory)},
        )
        if stop.wait(wait):
            return


def _run(made: FolderDaemon, stop: StopSignal) -> None:
    """Until it is told to stop."""
    with ThreadPoolExecutor(1, thread_name_prefix="folder-daemon") as pool:
        running = pool.submit(made.run)
        while not running.done() and not stop.wait(_LOOK_SECONDS):
            pass
        made.stop()
        running.result()


def _stop_with_the_supervisor() -> None:
    """It holds the other end of our input: when it is gone, so are we."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=wait, name="vedette-supervisor-gone", daemon=True).start()

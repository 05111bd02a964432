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

from vedette.cli.options import DEFAULT_DATA, DataOption
from vedette.cli.wqm.access import clock_of, directory_at
from vedette.errors import IngestError, StoreError
from vedette.processes.supervisor import Restarts

if TYPE_CHECKING:
    from vedette.processes.signals import StopSignal
    from vedette.search.folders.daemon import FolderDaemon

log = logging.getLogger(__name__)

__all__ = ["daemon"]

_LOOK_SECONDS = 0.5


def daemon(
    data: DataOption = DEFAULT_DATA,
    supervised: Annotated[bool, typer.Option("--supervised", hidden=True)] = False,
) -> None:
    """Watch the folders and take up what changes, in the foreground, until Ctrl-C or SIGTERM.

    `vedette serve` runs one by itself. Searches and other commands work beside it.

    \b
    Examples:
      wqm watch add ~/notes --collection notes
      wqm daemon
    """
    from vedette.processes.folder_daemon import open_daemon
    from vedette.processes.signals import StopSignal

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("vedette").setLevel(logging.WARNING if supervised else logging.INFO)
    directory = directory_at(data, make=True)
    if supervised:
        _stop_with_the_supervisor()
    restarts = Restarts(first_seconds=1.0, cap_seconds=30.0)
    with StopSignal() as stop:
        over = has_begun = False
        while not over:
            began = clock_of().monotonic()
            try:
                with open_daemon(directory, data) as made:
                    if not supervised and not has_begun:
                        print(f"Watching the folders of {directory}. Ctrl-C ends it.", flush=True)
                    has_begun = True
                    _run(made, stop)
                break
            except (StoreError, IngestError) as error:
                # Its disk is full, say: what it has open is of no use, and it cannot be opened anew until that ends.
                if not has_begun:
                    raise
                failure = error
            wait = restarts.wait(clock_of().monotonic() - began)
            log.error(
                "The daemon cannot go on and starts over in %.0f s: %s",
                wait,
                failure,
                extra={"action": "daemon.restart"},
            )
            over = stop.wait(wait)
    if not supervised:
        print("Stopped. What was not done yet is in the queue.")


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

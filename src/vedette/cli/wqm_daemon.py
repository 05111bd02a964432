"""`wqm daemon`: watch the folders, until told to stop."""

from __future__ import annotations

import logging
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import Annotated

import typer

from vedette.cli.options import DEFAULT_DATA, DataOption
from vedette.cli.wqm_place import directory_at

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
    from vedette.cli.folder_process import open_daemon
    from vedette.cli.stopping import StopSignal

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("vedette").setLevel(logging.WARNING if supervised else logging.INFO)
    directory = directory_at(data)
    with StopSignal() as stop, open_daemon(directory, data) as made:
        if supervised:
            _stop_with_the_supervisor()
        else:
            print(f"Watching the folders of {directory}. Ctrl-C ends it.", flush=True)
        with ThreadPoolExecutor(1, thread_name_prefix="folder-daemon") as pool:
            running = pool.submit(made.run)
            while not running.done() and not stop.wait(_LOOK_SECONDS):
                pass
            made.stop()
            running.result()
    if not supervised:
        print("Stopped. What was not done yet is in the queue.")


def _stop_with_the_supervisor() -> None:
    """It holds the other end of our input: when it is gone, so are we."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=wait, name="vedette-supervisor-gone", daemon=True).start()

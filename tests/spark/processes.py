"""Real processes for tests: a server, a client that waits for it, and the view that the client builds from events."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event as Flag
from typing import Any

import vedette
from vedette.client.blocking import connect_sync
from vedette.clock import SystemClock

__all__ = ["PROGRAM", "ClientView", "connected", "free_port", "served"]

PROGRAM = str(Path(sys.executable).with_name("vedette"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def served(folder: Path, port: int, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `vedette serve` in a folder. Its output is in `serve.out`."""
    command = [PROGRAM, "serve", "--port", str(port), "--http-port", "0", *options]
    with (folder / "serve.out").open("a") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(200)
        finally:
            process.kill()


@contextmanager
def connected(port: int) -> Iterator[vedette.BlockingSession]:
    """Connect as soon as the port is open."""
    clock, pause = SystemClock(), Flag()
    end = clock.monotonic() + 240
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            assert clock.monotonic() < end, "the port is closed"
            pause.wait(0.1)
    with connect_sync(f"ws://127.0.0.1:{port}") as client:
        yield client


class ClientView:
    """The documents that a client knows from its events. Fails on a duplicate or a lost change."""

    def __init__(self) -> None:
        self.rows: dict[Any, int] = {}
        self.events = 0

    def apply(self, event: Any) -> None:
        self.events += 1
        if event.type == "initial":
            assert self.events == 1, "the client had to start again"
            self.rows = {row["o.id"]: row["o.total"] for row in event.matches}
            return
        key, total = event.match["o.id"], event.match["o.total"]
        if event.type == "added":
            assert key not in self.rows, "a duplicate reached the client"
            self.rows[key] = total
        elif event.type == "changed":
            assert self.rows[key] == event.prev["o.total"], "a change was lost"
            self.rows[key] = total
        else:
            assert event.type == "removed"
            assert self.rows.pop(key) == total

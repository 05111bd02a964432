"""A Vedette server under load: its port and the ids of its processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.servers import free_port
from benchmarks.waiting import WaitTimeoutError, stop_process

__all__ = ["served"]

_PATIENCE_SECONDS = 60.0


@contextmanager
def served(directory: Path, workers: int) -> Iterator[tuple[int, list[int]]]:
    """Start `vedette serve` with this number of gateway workers; 0 is a single process."""
    port = free_port()
    command = [sys.executable, "-m", "vedette", "serve", "--data", str(directory), "--port", str(port)]
    command += ["--http-port", "0", "--workers", str(workers), "--no-pipeline"]
    # The default limit is 100,000 connections: as many as the largest case has readers, without its writer.
    environment = {**os.environ, "VEDETTE_MAX_CONNECTIONS_PER_TENANT": "1000000"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield port, _started(process, directory, workers)
    finally:
        stop_process(process)


def _started(process: subprocess.Popen[bytes], directory: Path, workers: int) -> list[int]:
    end = time.monotonic() + _PATIENCE_SECONDS
    while not (directory / "server.json").exists() or len(list(directory.glob("gateway-*.pid"))) < workers:
        if process.poll() is not None:
            raise RuntimeError(f"`vedette serve` ended with exit code {process.returncode} while starting")
        if time.monotonic() > end:
            raise WaitTimeoutError(f"the start of `vedette serve` with {workers} workers", _PATIENCE_SECONDS)
        time.sleep(0.05)
    marks = directory.glob("gateway-*.pid")
    engine = json.loads((directory / "server.json").read_text())["pid"]
    return [engine, *(int(mark.read_text()) for mark in marks)]

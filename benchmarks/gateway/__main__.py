"""python -m benchmarks.gateway CASE [--connections N] [--rate EVENTS_PER_SECOND] [--seconds S] [--workers N]."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvloop

from benchmarks.gateway.crowd import crowd
from benchmarks.gateway.fanout import fan_out
from benchmarks.gateway.load import CASES, Load

__all__: list[str] = []


@contextmanager
def served(directory: Path, workers: int) -> Iterator[tuple[int, list[int]]]:
    """A server; its port and the ids of its processes."""
    port = 17_707
    command = [sys.executable, "-m", "vedette", "serve", "--data", str(directory), "--port", str(port)]
    command += ["--http-port", "0", "--workers", str(workers), "--no-pipeline"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        while (
            not (directory / "server.json").exists() or len(list(directory.glob("gateway-*.pid"))) < workers
        ):
            if process.poll() is not None:
                raise SystemExit("the server did not start")
            time.sleep(0.05)
        pids = [json.loads((directory / "server.json").read_text())["pid"]]
        pids += [int(mark.read_text()) for mark in directory.glob("gateway-*.pid")]
        yield port, pids
    finally:
        process.terminate()
        process.wait(60)


def main() -> None:
    parser = ArgumentParser(prog="python -m benchmarks.gateway", description=__doc__)
    parser.add_argument("case", choices=sorted([*CASES, "crowd", "fan_out"]))
    parser.add_argument("--connections", type=int, default=2_000)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--workers", type=int, default=0)
    asked = parser.parse_args()
    if asked.case == "fan_out":
        print(json.dumps(uvloop.run(fan_out(asked.connections, asked.seconds)), indent=1))
        return
    with (
        tempfile.TemporaryDirectory(prefix="vedette-bench-") as folder,
        served(Path(folder) / "data", asked.workers) as (port, pids),
    ):
        load = Load(port, pids, asked.connections, asked.rate, asked.seconds)
        figures = uvloop.run({"crowd": crowd, **CASES}[asked.case](load))
    print(json.dumps({"case": asked.case, "connections": asked.connections, **figures}))


main()

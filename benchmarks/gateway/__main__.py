"""python -m benchmarks.gateway CASE [--connections N] [--rate EVENTS_PER_SECOND] [--seconds S] [--workers N]."""

from __future__ import annotations

import json
import tempfile
from argparse import ArgumentParser
from pathlib import Path

import uvloop

from benchmarks.gateway.connections import many_connections
from benchmarks.gateway.fanout import fan_out
from benchmarks.gateway.load import CASES, Load
from benchmarks.gateway.served import served

__all__: list[str] = []


def main() -> None:
    parser = ArgumentParser(prog="python -m benchmarks.gateway", description=__doc__)
    parser.add_argument("case", choices=sorted([*CASES, "connections", "fan_out"]))
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
        figures = uvloop.run({"connections": many_connections, **CASES}[asked.case](load))
    print(json.dumps({"case": asked.case, "connections": asked.connections, **figures}))


main()

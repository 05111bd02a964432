"""A process that opens a directory and works on it: python -m benchmarks.opened FOLDER NODES managed|python.

Prints its measurements as one line of JSON.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import msgspec

import vedette
from benchmarks.engines.seam import name_of, rank_of
from benchmarks.engines.vedette import SPAWN
from benchmarks.rounds import seconds

__all__ = ["resident_bytes"]

_STATEMENTS = 100_000


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


class _Pauses:
    """Times every garbage collection of the process."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._started = 0.0
        gc.callbacks.append(self._on_collection)

    def _on_collection(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._started = time.perf_counter()
        else:
            self.longest = max(self.longest, time.perf_counter() - self._started)


def _work(session: vedette.Session, nodes: int) -> float:
    """Run a mixture of statements and return the time of the slowest."""
    chance = Random(3)
    slowest = 0.0

    def execute(text: str, **values: Any) -> vedette.Result:
        nonlocal slowest
        started = time.perf_counter()
        result = session.execute(text, **values)
        slowest = max(slowest, time.perf_counter() - started)
        return result

    for number in range(_STATEMENTS // 4):
        key = nodes + number
        execute(SPAWN, key=key, name=name_of(key), rank=rank_of(key))
        execute("MATCH p: Person WHERE p.key = $key RETURN p", key=chance.randrange(nodes))
        execute(
            "MATCH p: Person WHERE p.key = $key SET p.rank = $rank", key=chance.randrange(nodes), rank=number
        )
        execute("MATCH p: Person WHERE p.key = $key KILL p", key=chance.randrange(nodes))
    time.sleep(1)
    return slowest


def _main(folder: str, nodes: int, collects: str) -> None:
    settings = vedette.Settings(durability="relaxed", manage_gc=collects == "managed")
    vedette.open(":memory:", settings=settings).close()  # so that loading the code is not counted as data
    before = resident_bytes()
    opened: list[vedette.Vedette] = []
    took = seconds(lambda: opened.append(vedette.open(folder, settings=settings)))
    grown = resident_bytes() - before
    pauses = _Pauses()
    slowest = _work(opened[0].session(), nodes)
    seen = {
        "seconds": took,
        "bytes": grown / nodes,
        "pause_ms": pauses.longest * 1000,
        "slowest_ms": slowest * 1000,
    }
    print(msgspec.json.encode(seen).decode(), flush=True)
    os._exit(0)  # the next round reads the directory again; freeing a million nodes is not measured


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]), sys.argv[3])

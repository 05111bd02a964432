"""Many connections, each with a watch of its own, from several processes; each event is for one of them.

A process that cannot connect all of its clients reports the reason and ends; the case then fails with it. Every answer
of a process has a time limit.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.gateway.load import Figures, Load
from benchmarks.waiting import read_line, stop_process

__all__ = ["ConnectionProcess", "many_connections"]

MOST_A_PROCESS = 15_000
CONNECT_SECONDS = 1_800.0
"""Time limit for all connections and their watches."""
ANSWER_SECONDS = 120.0
"""Time limit for one answer of a process."""
_SETTLING_SECONDS = 60.0


class ConnectionProcess:
    """One process, with `count` connections numbered from `first`."""

    def __init__(self, port: int, first: int, count: int) -> None:
        self._name = f"the process with connections {first} to {first + count - 1}"
        command = [
            sys.executable,
            "-m",
            "benchmarks.gateway.connection_child",
            str(port),
            str(first),
            str(count),
        ]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    async def hear(self, what: str, seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
        """Return the next answer; raise when the process reports a problem, ends, or takes too long."""
        assert self.process.stdout is not None
        line = await asyncio.to_thread(read_line, self.process.stdout, f"{what} from {self._name}", seconds)
        if not line:
            raise RuntimeError(f"{self._name} ended")
        answer = dict(json.loads(line))
        if "problem" in answer:
            raise RuntimeError(f"{self._name}: {answer['problem']}")
        return answer

    async def ask(self, what: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        return await self.hear(f"'{what}'")


@contextmanager
def _gathered(port: int, connections: int) -> Iterator[list[ConnectionProcess]]:
    starts = range(0, connections, MOST_A_PROCESS)
    members = [ConnectionProcess(port, first, min(MOST_A_PROCESS, connections - first)) for first in starts]
    try:
        yield members
    finally:
        for member in members:
            member.process.terminate()
        for member in members:
            stop_process(member.process)


async def many_connections(load: Load) -> Figures:
    """Connect all clients, write at the given rate, and return deliveries, delays and memory."""
    writer = await load.writer()
    before, begun = load.memory(), time.monotonic()
    with _gathered(load.port, load.connections) as members:
        hearing = (member.hear("the connections", CONNECT_SECONDS) for member in members)
        ready = sum(answer["ready"] for answer in await asyncio.gather(*hearing))
        gathered = time.monotonic() - begun
        held = (load.memory() - before) / ready
        used = load.cpu_seconds()
        sent = await load.write(writer, own=True)
        used = load.cpu_seconds() - used
        delivered, lost = await _settled(members, sent)
        load.delays += [delay for member in members for delay in (await member.ask("report"))["delays"]]
        return {
            **load.figures(sent, load.seconds),
            "delivered_once": int(delivered == sent),
            "lost_connections": lost,
            "connected": ready,
            "seconds_to_connect": gathered,
            "server_cpu_seconds_a_second": used / load.seconds,
            "bytes_per_connection": held,
            "bytes_per_connection_at_the_end": (load.memory() - before) / ready,
        }


async def _settled(members: list[ConnectionProcess], expected: int) -> tuple[int, int]:
    """Wait until every event has arrived, and a moment longer to detect duplicates."""
    end = time.monotonic() + _SETTLING_SECONDS
    extra = 2
    while True:
        answers = [await member.ask("count") for member in members]
        delivered, lost = sum(a["delivered"] for a in answers), sum(a["lost_connections"] for a in answers)
        extra -= delivered >= expected
        if extra == 0 or time.monotonic() > end:
            return delivered, lost
        await asyncio.sleep(0.5)

"""A crowd: many connections, each with a watch of its own, from several processes; each event is for one of them."""

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

__all__ = ["crowd"]

MOST_A_PROCESS = 15_000
_SETTLING_SECONDS = 60.0


class _Member:
    """One process of the crowd."""

    def __init__(self, port: int, first: int, count: int) -> None:
        command = [sys.executable, "-m", "benchmarks.gateway.crowd_member", str(port), str(first), str(count)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    async def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = await asyncio.to_thread(self.process.stdout.readline)
        if not line:
            raise RuntimeError("a process of the crowd ended")
        return dict(json.loads(line))

    async def ask(self, what: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        return await self.hear()


@contextmanager
def _gathered(port: int, connections: int) -> Iterator[list[_Member]]:
    starts = range(0, connections, MOST_A_PROCESS)
    members = [_Member(port, first, min(MOST_A_PROCESS, connections - first)) for first in starts]
    try:
        yield members
    finally:
        for member in members:
            member.process.terminate()
        for member in members:
            member.process.wait(60)


async def crowd(load: Load) -> Figures:
    """Connect all, then write at the pace asked for; who was told what, how late, and what it costs in memory."""
    writer = await load.writer()
    before, begun = load.memory(), time.monotonic()
    with _gathered(load.port, load.connections) as members:
        ready = sum([(await member.hear())["ready"] for member in members])
        gathered = time.monotonic() - begun
        held = (load.memory() - before) / ready
        used = load.cpu_seconds()
        sent = await load.write(writer, own=True)
        used = load.cpu_seconds() - used
        told, lost = await _settled(members, sent)
        load.delays += [delay for member in members for delay in (await member.ask("report"))["delays"]]
        return {
            **load.figures(sent, load.seconds),
            "told_once": int(told == sent),
            "lost_connections": lost,
            "connected": ready,
            "seconds_to_connect": gathered,
            "server_cpu_seconds_a_second": used / load.seconds,
            "bytes_per_connection": held,
            "bytes_per_connection_at_the_end": (load.memory() - before) / ready,
        }


async def _settled(members: list[_Member], wanted: int) -> tuple[int, int]:
    """Wait until everything has arrived, and a moment longer: nothing may come twice."""
    end = time.monotonic() + _SETTLING_SECONDS
    extra = 2
    while True:
        answers = [await member.ask("count") for member in members]
        told, lost = sum(a["told"] for a in answers), sum(a["lost_connections"] for a in answers)
        extra -= told >= wanted
        if extra == 0 or time.monotonic() > end:
            return told, lost
        await asyncio.sleep(0.5)

"""The cases: what a swarm does to a server, and what is measured of it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import msgspec

from benchmarks.gateway.processes import cpu_seconds, resident_bytes
from benchmarks.gateway.swarm import SwarmClient, connect_swarm

__all__ = ["CASES", "Figures", "Load", "everybody_back", "one_watch", "own_watches"]

_SENT_AT = re.compile(rb'"t\.at":(\d+)')
_TOKEN = re.compile(rb'"resumeToken":"([^"]+)"')
_WATCH = "WATCH t: Tick WHERE t.key = $k [initial: none] RETURN t.key, t.at"

_UNANSWERED = 200
"""Requests that one connection leaves unanswered: a server takes 256."""

Figures = dict[str, float | int]


@dataclass
class Load:
    """One swarm at one server."""

    port: int
    pids: list[int]
    """The server's processes, for their memory."""
    connections: int
    events_per_second: float
    seconds: float
    delays: list[float] = field(default_factory=list)
    """From the statement to the frame, in milliseconds, for every event that arrived."""
    carried_out: int = 0
    """Statements of the writer that were answered with a result."""
    turned_down: int = 0
    """Those that were not: more would have waited than may."""
    acknowledged: int = 0
    resumed: int = 0
    refused: int = 0
    tokens: dict[int, str] = field(default_factory=dict)

    def heard(self, number: int, data: bytes) -> None:
        if data.startswith(b'{"type":"event"'):
            found = _SENT_AT.search(data)
            if found is not None:
                self.delays.append(time.time() * 1000 - int(found[1]) / 1000)
        elif b'"subscribe_ack"' in data[:60]:
            self.acknowledged += 1
            found = _TOKEN.search(data)
            if found is not None:
                self.tokens[number] = found[1].decode()
        elif b'"resume-ack"' in data[:60]:
            self.resumed += b'"status":"ok"' in data
            self.refused += b'"status":"ok"' not in data

    def memory(self) -> int:
        """Bytes that the server's processes hold."""
        return sum(resident_bytes(pid) for pid in self.pids)

    def cpu_seconds(self) -> float:
        """What the server's processes have used."""
        return sum(cpu_seconds(pid) for pid in self.pids)

    async def until(self, done: Callable[[], bool], seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not done() and time.monotonic() < end:  # noqa: ASYNC110 - the figures come from many places
            await asyncio.sleep(0.02)
        return done()

    async def writer(self) -> SwarmClient:
        ready: asyncio.Event = asyncio.Event()

        def answered(_: int, data: bytes) -> None:
            kind = msgspec.json.decode(data)["type"]
            self.carried_out += kind == "result"
            self.turned_down += kind == "error"
            if kind == "define_ack":
                ready.set()

        (client,) = await connect_swarm(self.port, 1, answered)
        client.say({"type": "define", "id": "d", "payload": {"ontology": "node Tick { key: Int, at: Int }"}})
        await ready.wait()
        return client

    async def subscribe(self, clients: list[SwarmClient], *, own: bool, first: int = 0) -> None:
        for number, client in enumerate(clients):
            params = {"k": first + number if own else 0}
            client.say({"type": "subscribe", "id": "s", "payload": {"watch": _WATCH, "params": params}})
            if number % 500 == 499:
                await asyncio.sleep(0.01)
        assert await self.until(lambda: self.acknowledged >= len(clients), 600), "not all were acknowledged"

    async def write(
        self, writer: SwarmClient, *, own: bool, until: Callable[[], bool] = lambda: False
    ) -> int:
        """Write at the pace asked for, but wait while too much is unanswered; how many were carried out."""
        start, sent, before = time.monotonic(), 0, self.carried_out + self.turned_down
        carried_out = self.carried_out
        while (elapsed := time.monotonic() - start) < self.seconds and not until():
            if sent > elapsed * self.events_per_second:
                await asyncio.sleep(sent / self.events_per_second - elapsed)
            if before + sent - self.carried_out - self.turned_down >= _UNANSWERED:
                await asyncio.sleep(0.001)
                continue
            params = {"k": sent * 7919 % self.connections if own else 0, "at": int(time.time() * 1_000_000)}
            statement = "SPAWN t: Tick { key = $k, at = $at }"
            writer.say({"type": "execute", "payload": {"statement": statement, "params": params}})
            sent += 1
        await self.until(lambda: self.carried_out + self.turned_down >= before + sent, 60)
        return self.carried_out - carried_out

    def figures(self, wanted: int, seconds: float) -> Figures:
        delays = sorted(self.delays) or [float("nan")]
        return {
            "wanted": wanted,
            "statements_turned_down": self.turned_down,
            "delivered": len(self.delays),
            "mean_ms": sum(delays) / len(delays),
            "p50_ms": delays[len(delays) // 2],
            "p99_ms": delays[int(len(delays) * 0.99)],
            "messages_per_second": len(self.delays) / seconds,
        }


async def own_watches(load: Load) -> Figures:
    """Every connection has a watch of its own; each event is for one of them."""
    return await _told(load, own=True)


async def one_watch(load: Load) -> Figures:
    """All connections have the same watch; each event is for all of them."""
    return await _told(load, own=False)


async def _told(load: Load, *, own: bool) -> Figures:
    writer = await load.writer()
    before = load.memory()
    clients = await connect_swarm(load.port, load.connections, load.heard)
    await load.subscribe(clients, own=own)
    held = (load.memory() - before) / load.connections
    start = time.monotonic()
    sent = await load.write(writer, own=own)
    wanted = sent if own else sent * load.connections
    await load.until(lambda: len(load.delays) >= wanted, 60)
    return {**load.figures(wanted, time.monotonic() - start), "bytes_per_connection": held}


async def everybody_back(load: Load) -> Figures:
    """All lose their connection at once, come back and resume, while the writer goes on."""
    writer = await load.writer()
    clients = await connect_swarm(load.port, load.connections, load.heard)
    await load.subscribe(clients, own=True)
    quiet = await _timed(load.write(writer, own=True))
    server, swarm = load.cpu_seconds(), time.process_time()
    for client in clients:
        assert client.transport is not None
        client.transport.abort()
    load.seconds = 120.0

    def all_back() -> bool:
        return load.resumed + load.refused >= load.connections

    busy = asyncio.create_task(_timed(load.write(writer, own=True, until=all_back)))
    start = time.monotonic()
    await connect_swarm(
        load.port,
        load.connections,
        load.heard,
        at_once=500,
        then=lambda number: {"type": "resume", "id": "s", "token": load.tokens[number]},
    )
    await load.until(all_back, 120)
    took = time.monotonic() - start
    server, swarm = load.cpu_seconds() - server, time.process_time() - swarm
    return {
        "seconds": took,
        "resumed": load.resumed,
        "told_to_resync": load.refused,
        "still_away": load.connections - load.resumed - load.refused,
        "written_per_second_before": quiet,
        "written_per_second_meanwhile": await busy,
        "server_cpu_seconds": server,
        "swarm_cpu_seconds": swarm,
    }


async def _timed(work: Coroutine[Any, Any, int]) -> float:
    start = time.monotonic()
    done = await work
    return done / (time.monotonic() - start)


CASES: dict[str, Callable[[Load], Any]] = {
    "own_watches": own_watches,
    "one_watch": one_watch,
    "everybody_back": everybody_back,
}

"""The cases: the load of many clients on a server, and its measurements."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import msgspec

from benchmarks.gateway.processes import cpu_seconds, resident_bytes
from benchmarks.gateway.swarm import ConnectionRefused, SwarmClient, closed_by_server, connect_swarm
from benchmarks.waiting import WaitTimeoutError, wait_for, wait_until_async

__all__ = ["CASES", "Figures", "Load", "one_watch", "own_watches", "reconnect_storm"]

_SENT_AT = re.compile(rb'"t\.at":(\d+)')
_TOKEN = re.compile(rb'"resumeToken":"([^"]+)"')
_WATCH = "WATCH t: Tick WHERE t.key = $k [initial: none] RETURN t.key, t.at"

_ANSWER_SECONDS = 60.0
_SUBSCRIBE_SECONDS = 600.0
_RESUME_SECONDS = 120.0
_UNANSWERED = 200
"""Maximum unanswered requests of one connection; a server accepts 256."""

Figures = dict[str, float | int]


@dataclass
class Load:
    """Many clients of one server."""

    port: int
    pids: list[int]
    """Process ids of the server, to read their memory."""
    connections: int
    events_per_second: float
    seconds: float
    delays: list[float] = field(default_factory=list)
    """From the statement to the frame, in milliseconds, for every event that arrived."""
    carried_out: int = 0
    """Number of the writer's statements that returned a result."""
    turned_down: int = 0
    """Number of statements rejected because too many were waiting."""
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
        """Memory of the server's processes in bytes."""
        return sum(resident_bytes(pid) for pid in self.pids)

    def cpu_seconds(self) -> float:
        """CPU seconds used by the server's processes."""
        return sum(cpu_seconds(pid) for pid in self.pids)

    async def writer(self) -> SwarmClient:
        ready: asyncio.Event = asyncio.Event()

        def answered(_: int, data: bytes) -> None:
            kind = msgspec.json.decode(data)["type"]
            self.carried_out += kind == "result"
            self.turned_down += kind == "error"
            if kind == "define_ack":
                ready.set()

        (client,) = await connect_swarm(self.port, 1, answered)
        client.send({"type": "define", "id": "d", "payload": {"ontology": "node Tick { key: Int, at: Int }"}})
        await wait_for(ready.wait(), "the answer to the definition of the types", _ANSWER_SECONDS)
        return client

    async def subscribe(self, clients: list[SwarmClient], *, own: bool, first: int = 0) -> None:
        for number, client in enumerate(clients):
            params = {"k": first + number if own else 0}
            client.send({"type": "subscribe", "id": "s", "payload": {"watch": _WATCH, "params": params}})
            if number % 500 == 499:
                await asyncio.sleep(0.01)
        await self._acknowledged(clients)

    async def _acknowledged(self, clients: list[SwarmClient]) -> None:
        """Wait until every subscription is acknowledged; fail at once when the server closes a connection."""
        looked = 0.0

        def done() -> bool:
            nonlocal looked
            if time.monotonic() - looked > 1.0:  # checking all of them takes long
                looked = time.monotonic()
                ended = closed_by_server(clients)
                if ended:
                    raise ConnectionRefused(f"{self.acknowledged} of {len(clients)} subscribed; {ended}")
            return self.acknowledged >= len(clients)

        try:
            await wait_until_async(done, f"{len(clients)} acknowledged subscriptions", _SUBSCRIBE_SECONDS)
        except WaitTimeoutError as error:
            raise RuntimeError(f"{error}; {self.acknowledged} came") from error

    async def write(
        self, writer: SwarmClient, *, own: bool, until: Callable[[], bool] = lambda: False
    ) -> int:
        """Write at the given rate, waiting while too many requests are unanswered.

        Return the number of completed statements.
        """
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
            writer.send({"type": "execute", "payload": {"statement": statement, "params": params}})
            sent += 1
        await wait_until_async(
            lambda: self.carried_out + self.turned_down >= before + sent,
            f"the answers to {sent} statements",
            _ANSWER_SECONDS,
        )
        return self.carried_out - carried_out

    def figures(self, expected: int, seconds: float) -> Figures:
        delays = sorted(self.delays) or [float("nan")]
        return {
            "expected": expected,
            "statements_rejected": self.turned_down,
            "delivered": len(self.delays),
            "mean_ms": sum(delays) / len(delays),
            "p50_ms": delays[len(delays) // 2],
            "p99_ms": delays[int(len(delays) * 0.99)],
            "messages_per_second": len(self.delays) / seconds,
        }


async def own_watches(load: Load) -> Figures:
    """Every connection has its own watch; each event is for one of them."""
    return await _measure_delays(load, own=True)


async def one_watch(load: Load) -> Figures:
    """All connections have the same watch; each event is for all of them."""
    return await _measure_delays(load, own=False)


async def _measure_delays(load: Load, *, own: bool) -> Figures:
    writer = await load.writer()
    before = load.memory()
    clients = await connect_swarm(load.port, load.connections, load.heard)
    await load.subscribe(clients, own=own)
    held = (load.memory() - before) / load.connections
    start = time.monotonic()
    sent = await load.write(writer, own=own)
    expected = sent if own else sent * load.connections
    try:
        await wait_until_async(lambda: len(load.delays) >= expected, f"{expected} events", _ANSWER_SECONDS)
    except WaitTimeoutError as error:
        raise RuntimeError(f"{error}; {len(load.delays)} came. {closed_by_server(clients)}") from error
    return {**load.figures(expected, time.monotonic() - start), "bytes_per_connection": held}


async def reconnect_storm(load: Load) -> Figures:
    """Break all connections at once. All clients reconnect and resume while the writer continues."""
    writer = await load.writer()
    clients = await connect_swarm(load.port, load.connections, load.heard)
    await load.subscribe(clients, own=True)
    quiet = await _timed(load.write(writer, own=True))
    server, swarm = load.cpu_seconds(), time.process_time()
    for client in clients:
        assert client.transport is not None
        client.transport.abort()
    load.seconds = _RESUME_SECONDS

    def all_back() -> bool:
        return load.resumed + load.refused >= load.connections

    busy = asyncio.create_task(_timed(load.write(writer, own=True, until=all_back)))
    start = time.monotonic()
    back = await connect_swarm(
        load.port,
        load.connections,
        load.heard,
        at_once=500,
        then=lambda number: {"type": "resume", "id": "s", "token": load.tokens[number]},
    )
    try:
        await wait_until_async(all_back, f"{load.connections} resumed connections", _RESUME_SECONDS)
    except WaitTimeoutError as error:
        raise RuntimeError(
            f"{error}; {load.resumed + load.refused} came. {closed_by_server(back)}"
        ) from error
    took = time.monotonic() - start
    server, swarm = load.cpu_seconds() - server, time.process_time() - swarm
    return {
        "seconds": took,
        "resumed": load.resumed,
        "resync_required": load.refused,
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
    "reconnect_storm": reconnect_storm,
}

"""python -m benchmarks.pipeline.end_to_end [--rate N] [--seconds N] [--idle N]: source ▸ Spark ▸ gateway ▸ client.

Runs a real `vedette serve` with its pipeline. This program is the source reader, which appends to the journal, and all
clients. A delay is the time from the return of an append to the arrival of the event at the client. Every event matches
one of the watches, and one watch that matches all: an event that is missing there was lost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

import numpy as np

from benchmarks.waiting import WaitTimeoutError, stop_process, wait_for, wait_until_async
from vedette.client.session import connect
from vedette.client.watch import RemoteWatch
from vedette.sources.images import encode_image
from vedette.sources.journal.seam import CollectionJournal, open_journal
from vedette.sources.records import Source, SourceEvent

__all__: list[str] = []

APPENDS = 50
"""Appends per second; each has the same number of events."""
WARM_UP_SECONDS = 8
_TICKS = os.sysconf("SC_CLK_TCK")


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline.end_to_end")
    parser.add_argument("--rate", type=int, default=1_000, help="events a second")
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--idle", type=int, default=30, help="seconds of silence before the last event")
    parser.add_argument("--connections", type=int, default=10)
    parser.add_argument("--watches", type=int, default=100, help="over all connections")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        data_directory = Path(folder)
        journal = open_journal(data_directory)
        # Paused, so that only this program writes to its journal.
        journal.add_source(Source(name="shop", kind="graph", address=folder, paused=True))
        server = subprocess.Popen(
            [sys.executable, "-m", "vedette", "serve", "--data", folder, "--port", "0", "--http-port", "0"]
        )
        try:
            asyncio.run(run(data_directory, journal, options))
        finally:
            stop_process(server)
            journal.close()


class Orders:
    """Writes orders, and records when each was written and when it arrived."""

    def __init__(self, journal: CollectionJournal, watches: int) -> None:
        self._journal, self._watches = journal, watches
        self._chance = Random(3)
        self.sent: dict[int, float] = {}
        self.arrived: dict[int, float] = {}

    def append(self, count: int) -> None:
        events = [
            SourceEvent(
                event_id=f"{len(self.sent)}.{n}",
                collection="orders",
                key=f"k{self._chance.randrange(5_000)}",
                after=encode_image(
                    {
                        "customer": self._chance.randrange(self._watches),
                        "number": len(self.sent) + n,
                    }
                ),
                time_ms=0,
            )
            for n in range(count)
        ]
        last = self._journal.append("shop", events, None).offset
        now = time.perf_counter()
        self.sent.update(dict.fromkeys(range(last - count + 1, last + 1), now))

    async def follow(self, watch: RemoteWatch) -> None:
        async for event in watch:
            if event.type != "initial":
                self.arrived[event.tick] = time.perf_counter()

    async def settle(self, seconds: float = 60.0) -> None:
        """Wait for the events of all changes. The report counts missing ones."""
        with suppress(WaitTimeoutError):
            await wait_until_async(
                lambda: len(self.arrived) >= len(self.sent), f"{len(self.sent)} events", seconds, pause=0.01
            )


async def run(data_directory: Path, journal: CollectionJournal, options: argparse.Namespace) -> None:
    await wait_until_async((data_directory / "server.json").is_file, "the start of the server", 60)
    port = json.loads((data_directory / "server.json").read_text())["port"]
    clients = [connect(f"ws://127.0.0.1:{port}") for _ in range(options.connections)]
    for client in clients:
        await client.__aenter__()
    orders = Orders(journal, options.watches)
    watches = [
        clients[n % len(clients)].watch("WATCH o: shop::orders WHERE o.customer = $n RETURN o.id", n=n)
        for n in range(options.watches)
    ]
    everything = clients[0].watch("WATCH o: shop::orders [initial: none] RETURN o.number, o")
    ready = asyncio.gather(*(watch.ready() for watch in (*watches, everything)))
    await wait_for(ready, f"{len(watches) + 1} acknowledged watches", 300)
    following = asyncio.create_task(orders.follow(everything))
    begin = time.perf_counter()
    orders.append(1)
    await orders.settle(300)
    print(f"from the start to the first event: {time.perf_counter() - begin:.1f} s", flush=True)
    await load(orders, options.rate, WARM_UP_SECONDS)
    parts = processes(data_directory)
    before, begin = {name: cpu_seconds(pid) for name, pid in parts.items()}, time.perf_counter()
    await load(orders, options.rate, options.seconds)
    await orders.settle()
    took = time.perf_counter() - begin
    shares = {name: spent_since(before[name], pid) / took for name, pid in parts.items()}
    report(orders, min(orders.sent) + 1 + WARM_UP_SECONDS * options.rate, options, data_directory)
    print("cores used: " + ", ".join(f"{name} {share:.2f}" for name, share in shares.items()), flush=True)
    await idle(orders, data_directory, options.idle)
    following.cancel()
    for client in clients:
        await client.__aexit__(None, None, None)


def processes(data_directory: Path) -> dict[str, int]:
    """The pipeline with its Java and its workers, the engine with the gateway, and this program."""
    return {
        "pipeline": json.loads((data_directory / "pipeline.json").read_text())["pid"],
        "gateway": json.loads((data_directory / "server.json").read_text())["pid"],
        "source and clients": os.getpid(),
    }


async def load(orders: Orders, rate: int, seconds: int) -> None:
    begin = time.perf_counter()
    for turn in range(seconds * APPENDS):
        await asyncio.to_thread(orders.append, rate // APPENDS)
        await asyncio.sleep(max(0.0, begin + (turn + 1) / APPENDS - time.perf_counter()))


def report(orders: Orders, first: int, options: argparse.Namespace, data_directory: Path) -> None:
    counted = [offset for offset in orders.sent if offset >= first]
    delays = 1000 * np.array([orders.arrived[o] - orders.sent[o] for o in counted if o in orders.arrived])
    status = json.loads((data_directory / "pipeline.json").read_text())
    load1, _, _ = os.getloadavg()
    print(
        f"{options.rate} events/s, {options.watches} watches, {options.connections} connections: "
        f"p50 {np.median(delays):.0f} ms, p99 {np.quantile(delays, 0.99):.0f} ms, "
        f"lost {len(orders.sent) - len(orders.arrived)}; a batch {status.get('batch_ms')} ms; load average {load1:.1f}",
        flush=True,
    )


async def idle(orders: Orders, data_directory: Path, seconds: int) -> None:
    pid = json.loads((data_directory / "pipeline.json").read_text())["pid"]
    await asyncio.sleep(2)
    before, begin = cpu_seconds(pid), time.perf_counter()
    await asyncio.sleep(seconds)
    share = spent_since(before, pid) / (time.perf_counter() - begin)
    orders.append(1)
    last = max(orders.sent)
    await orders.settle()
    if last not in orders.arrived:
        raise WaitTimeoutError("the first event after the idle time", 60)
    delay = 1000 * (orders.arrived[last] - orders.sent[last])
    print(f"idle for {seconds} s: {share:.1%} of a core; the first event afterwards {delay:.0f} ms")


def cpu_seconds(root: int) -> dict[int, float]:
    """Processor time of a process and everything below it."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        parents[int(folder.name)] = int(fields[1])
        used[int(folder.name)] = (int(fields[11]) + int(fields[12])) / _TICKS

    def below(pid: int) -> bool:
        while pid in parents and pid != root:
            pid = parents[pid]
        return pid == root

    own = {pid: spent for pid, spent in used.items() if below(pid)}
    return own if root != os.getpid() else {root: own[root]}


def spent_since(before: dict[int, float], root: int) -> float:
    """Processes that have ended meanwhile are not counted; those that are new are."""
    return sum(spent - before.get(pid, 0.0) for pid, spent in cpu_seconds(root).items())


if __name__ == "__main__":
    main()

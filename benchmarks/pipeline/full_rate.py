"""python -m benchmarks.pipeline.full_rate [--rate N] [--watches N] [--connections N] [--seconds N]: sustained rate.

Runs a real `vedette serve` with its pipeline, a process that appends to the journal as a source reader does, and this
process, which has all connections. Each watch has a document of its own, so every change matches exactly one watch. A
document contains its time and its number: nothing is lost if every number arrives once.
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
import uvloop

from benchmarks.gateway.swarm import SwarmClient, connect_swarm
from benchmarks.pipeline.end_to_end import cpu_seconds, spent_since
from benchmarks.waiting import WaitTimeoutError, stop_process, wait_for, wait_until_async
from vedette.sources.images import encode_image
from vedette.sources.journal.seam import open_journal
from vedette.sources.records import Source, SourceEvent

__all__: list[str] = []

APPENDS = 50
"""Appends per second; each has the same number of changes."""
WARM_UP_SECONDS = 10
SUBSCRIBES_AT_ONCE = 2_000


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline.full_rate")
    parser.add_argument("--rate", type=int, default=10_000, help="changes a second")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--connections", type=int, default=1_000)
    parser.add_argument("--watches", type=int, default=100_000, help="over all connections")
    parser.add_argument(
        "--write", metavar="HOME", help="run as the source: append to the journal of this folder"
    )
    options = parser.parse_args(words)
    if options.write:
        write(Path(options.write), options)
        return
    with tempfile.TemporaryDirectory() as folder:
        data_directory = Path(folder)
        journal = open_journal(data_directory)
        # Paused, so that only the writer appends to its journal.
        journal.add_source(Source(name="shop", kind="graph", address=folder, paused=True))
        journal.close()
        server = subprocess.Popen(
            [sys.executable, "-m", "vedette", "serve", "--data", folder, "--port", "0", "--http-port", "0"]
        )
        try:
            uvloop.run(run(data_directory, options))
        finally:
            stop_process(server)


def write(data_directory: Path, options: argparse.Namespace) -> None:
    """Read numbers of seconds from stdin, write for that long, and print the number of changes so far."""
    journal, chance, count = open_journal(data_directory), Random(3), 0
    for line in sys.stdin:
        begin = time.monotonic()
        for number in range(int(line) * APPENDS):
            now, events = time.monotonic_ns(), []
            for _ in range(options.rate // APPENDS):
                customer = chance.randrange(options.watches)
                document = {"customer": customer, "number": count, "at": now}
                events.append(
                    SourceEvent(
                        event_id=str(count),
                        collection="orders",
                        key=f"k{customer}",
                        after=encode_image(document),
                        time_ms=0,
                    )
                )
                count += 1
            journal.append("shop", events, None)
            time.sleep(max(0.0, begin + (number + 1) / APPENDS - time.monotonic()))
        print(count, time.monotonic() - begin, flush=True)


class Arrivals:
    """Events and acknowledgements of all connections."""

    def __init__(self) -> None:
        self.subscribed = 0
        self.delays: list[float] = []
        self.numbers: list[int] = []
        self.others: list[bytes] = []

    def receive(self, client: int, data: bytes) -> None:  # noqa: ARG002 - the swarm's signature
        place = data.find(b'"o.at":')
        if place >= 0:
            now, end = time.monotonic_ns(), data.index(b",", place)
            self.delays.append((now - int(data[place + 7 : end])) / 1e6)
            place = data.index(b'"o.number":') + 11
            self.numbers.append(int(data[place : data.index(b"}", place)]))
        elif b'"subscribe_ack"' in data:
            self.subscribed += 1
        elif b'"pong"' not in data and len(self.others) < 100:
            self.others.append(data)


async def run(data_directory: Path, options: argparse.Namespace) -> None:
    await wait_until_async((data_directory / "server.json").is_file, "the start of the server", 60)
    port, arrivals = json.loads((data_directory / "server.json").read_text())["port"], Arrivals()
    clients = await connect_swarm(port, options.connections, arrivals.receive)
    begin = time.monotonic()
    await subscribe(clients, arrivals, options.watches)
    print(
        f"{options.watches} watches in {time.monotonic() - begin:.0f} s; other messages: {arrivals.others[-1:]}",
        flush=True,
    )
    words = ("--write", str(data_directory), "--rate", str(options.rate), "--watches", str(options.watches))
    writer = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.pipeline.full_rate",
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    for seconds in (1, WARM_UP_SECONDS):
        count, _ = await written(writer, seconds)
        await settle(arrivals, count)
    parts, first, begin = processes(data_directory, writer.pid), len(arrivals.numbers), time.monotonic()
    before = {name: cpu_seconds(pid) for name, pid in parts.items()}
    count, wrote = await written(writer, options.seconds)
    await settle(arrivals, count)
    took = time.monotonic() - begin
    spent = {name: spent_since(before[name], pid) for name, pid in parts.items()}
    report(arrivals, first, count, wrote, took, spent, data_directory, options)
    writer.terminate()
    await wait_for(writer.wait(), "the end of the writer", 60)


async def written(writer: asyncio.subprocess.Process, seconds: int) -> tuple[int, float]:
    """Let the writer write for some seconds. Return the number of changes so far and the seconds it took."""
    assert writer.stdin is not None
    assert writer.stdout is not None
    writer.stdin.write(f"{seconds}\n".encode())
    line = await wait_for(writer.stdout.readline(), f"{seconds} seconds of changes", 10 * seconds + 120)
    count, took = line.split()
    return int(count), float(took)


async def subscribe(clients: Sequence[SwarmClient], arrivals: Arrivals, watches: int) -> None:
    statement = "WATCH o: shop::orders WHERE o.customer = $n [initial: none] RETURN o.at, o.number"
    for number in range(watches):
        payload = {"watch": statement, "params": {"n": number}}
        clients[number % len(clients)].send({"type": "subscribe", "id": f"w{number}", "payload": payload})
        if number - arrivals.subscribed >= SUBSCRIBES_AT_ONCE:
            await wait_until_async(
                lambda sent=number: sent - arrivals.subscribed < SUBSCRIBES_AT_ONCE,  # type: ignore[misc]
                f"the acknowledgement of watch {number - SUBSCRIBES_AT_ONCE}",
                300,
                pause=0.01,
            )
    await wait_until_async(lambda: arrivals.subscribed == watches, f"{watches} acknowledged watches", 300)
    assert not any(b'"error"' in message for message in arrivals.others), arrivals.others[-1]


async def settle(arrivals: Arrivals, count: int, seconds: float = 120.0) -> None:
    """Wait for the events of all changes. The report counts missing ones."""
    with suppress(WaitTimeoutError):
        await wait_until_async(lambda: len(arrivals.numbers) >= count, f"{count} events", seconds, pause=0.01)


def processes(data_directory: Path, writer: int) -> dict[str, int]:
    return {
        "pipeline": json.loads((data_directory / "pipeline.json").read_text())["pid"],
        "gateway": json.loads((data_directory / "server.json").read_text())["pid"],
        "source": writer,
        "clients": os.getpid(),
    }


def report(
    arrivals: Arrivals,
    first: int,
    count: int,
    wrote: float,
    took: float,
    spent: dict[str, float],
    data_directory: Path,
    options: argparse.Namespace,
) -> None:
    delays, status = (
        np.array(arrivals.delays[first:]),
        json.loads((data_directory / "pipeline.json").read_text()),
    )
    each = {name: 1e6 * seconds / (options.rate * options.seconds) for name, seconds in spent.items()}
    cores, unique = sum(spent.values()) / took, len(set(arrivals.numbers))
    print(
        f"{options.rate} changes/s for {options.seconds} s (written in {wrote:.1f} s, received after {took:.1f} s), "
        f"{options.watches} watches, {options.connections} connections: p50 {np.median(delays):.0f} ms, "
        f"p99 {np.quantile(delays, 0.99):.0f} ms, max {delays.max():.0f} ms; lost {count - unique}, "
        f"duplicates {len(arrivals.numbers) - unique}; a batch {status.get('batch_ms')} ms; "
        f"load average {os.getloadavg()[0]:.1f}"
    )
    print(
        f"processor time a change, µs: {', '.join(f'{name} {part:.0f}' for name, part in each.items())}; "
        f"together {cores:.2f} cores",
        flush=True,
    )


if __name__ == "__main__":
    main()

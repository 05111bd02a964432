"""One process with many connections: python -m benchmarks.gateway.connection_child PORT FIRST COUNT.

A process has at most 20,000 open files, and one address of the loopback network 28,000 ports; so the case uses several
processes, each with its own addresses. The process writes lines of JSON: first the number of its connections once all
have their watch, then the number of received events for each `count` that it reads, and the delays for `report`. A
failure is the answer `problem`.
"""

from __future__ import annotations

import asyncio
import json
import sys

import uvloop

from benchmarks.gateway.load import Load
from benchmarks.gateway.swarm import SwarmClient, connect_swarm

__all__: list[str] = []


async def main(port: int, first: int, count: int) -> int:
    try:
        await serve_commands(port, first, count)
    except Exception as error:
        print(json.dumps({"problem": f"{type(error).__name__}: {error}"}), flush=True)
        return 1
    return 0


async def serve_commands(port: int, first: int, count: int) -> None:
    load = Load(port=port, pids=[], connections=count, events_per_second=0, seconds=0)
    clients = await connect_swarm(port, count, load.heard, first=first)
    await load.subscribe(clients, own=True, first=first)
    print(json.dumps({"ready": len(clients)}), flush=True)
    commands: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin, lambda: commands.put_nowait(sys.stdin.readline().strip()))
    while (command := await commands.get()) in ("count", "report"):
        if command == "count":
            print(json.dumps({"delivered": len(load.delays), "lost_connections": _lost(clients)}), flush=True)
        else:
            print(json.dumps({"delays": [round(delay, 2) for delay in load.delays]}), flush=True)


def _lost(clients: list[SwarmClient]) -> int:
    return sum(bool(client.closed) for client in clients)


if __name__ == "__main__":
    sys.exit(uvloop.run(main(*map(int, sys.argv[1:4]))))

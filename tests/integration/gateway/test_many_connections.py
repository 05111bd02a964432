"""Two thousand connections, each with its own watch: each gets its own events once, and no other."""

from __future__ import annotations

import asyncio
import re
from collections import Counter

from benchmarks.gateway.load import Load
from benchmarks.gateway.swarm import connect_swarm
from benchmarks.waiting import wait_until_async
from tests.support.gateway_server import Serving

CONNECTIONS, EVENTS = 2_000, 500
_KEY = re.compile(rb'"t\.key":(\d+)')


async def crowd(server: Serving) -> tuple[Counter[int], Counter[int]]:
    """Number of events sent for each connection, and number that each received."""
    load = Load(server.port, [], CONNECTIONS, 0, 0)
    meant, told = Counter[int](), Counter[int]()

    def heard(number: int, data: bytes) -> None:
        load.heard(number, data)
        if data.startswith(b'{"type":"event"'):
            found = _KEY.search(data)
            assert found is not None
            assert int(found[1]) == number, "an event of another connection"
            told[number] += 1

    writer = await load.writer()
    clients = await connect_swarm(server.port, CONNECTIONS, heard)
    await load.subscribe(clients, own=True)
    statement = "SPAWN t: Tick { key = $k, at = 0 }"
    for n in range(EVENTS):
        key = n * 7919 % CONNECTIONS
        meant[key] += 1
        writer.send({"type": "execute", "payload": {"statement": statement, "params": {"k": key}}})
        if n % 100 == 99:  # more would exceed the limit on pending requests
            await wait_until_async(lambda: told.total() > n, f"{n + 1} events", 60)  # noqa: B023 - awaited here
    for client in [*clients, writer]:
        assert client.transport is not None
        client.transport.abort()
    return meant, told


def test_each_of_two_thousand_connections_gets_its_own_events_once():
    with Serving() as server:
        meant, told = asyncio.run(crowd(server))
        assert told == meant

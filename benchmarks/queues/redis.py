"""Redis Streams: XADD, a consumer group, XACK and XDEL together."""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any

from benchmarks.queues.seam import PATIENCE_S, PAYLOAD, LoopQueue

__all__ = ["RedisQueue"]


class RedisQueue(LoopQueue):
    def __init__(self, port: int) -> None:
        super().__init__()
        self._redis: Any = import_module("redis.asyncio").Redis(host="127.0.0.1", port=port)
        self.run(self._start())

    async def _start(self) -> None:
        await self._redis.xgroup_create("jobs", "workers", id="0", mkstream=True)

    async def put_one(self) -> None:
        await self._redis.xadd("jobs", {"payload": PAYLOAD})

    async def _read(self, most: int) -> list[Any]:
        # Named, because the form of the reply depends on the version of the protocol.
        answer = await self._redis.xreadgroup(
            "workers", "worker", {"jobs": ">"}, count=most, block=PATIENCE_S * 1000
        )
        entries = answer[b"jobs"] if isinstance(answer, dict) else answer[0][1]
        flat = entries[0] if entries and isinstance(entries[0], list) else entries
        return [entry[0] for entry in flat]

    async def _end(self, ids: list[Any]) -> None:
        async with self._redis.pipeline(transaction=True) as together:
            together.xack("jobs", "workers", *ids)
            together.xdel("jobs", *ids)
            await together.execute()

    async def take_some(self, most: int) -> int:
        ids = await self._read(most)
        await self._end(ids)
        return len(ids)

    async def arrival(self) -> float:
        ids = await self._read(1)
        moment = time.perf_counter()
        await self._end(ids)
        return moment

    async def end(self) -> None:
        await self._redis.aclose()

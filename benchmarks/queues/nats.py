"""NATS JetStream: a stream with work-queue retention in files, a pull consumer, acknowledgements that are confirmed."""

from __future__ import annotations

import asyncio
import time
from importlib import import_module
from typing import Any

from benchmarks.queues.seam import PATIENCE_S, PAYLOAD, LoopQueue

__all__ = ["NatsQueue"]


class NatsQueue(LoopQueue):
    def __init__(self, url: str) -> None:
        super().__init__()
        self.run(self._start(url))

    async def _start(self, url: str) -> None:
        api = import_module("nats.js.api")
        self._client: Any = await import_module("nats").connect(url)
        self._stream: Any = self._client.jetstream()
        retention, storage = api.RetentionPolicy.WORK_QUEUE, api.StorageType.FILE
        await self._stream.add_stream(name="jobs", subjects=["jobs"], retention=retention, storage=storage)
        limits = api.ConsumerConfig(ack_wait=PATIENCE_S, max_ack_pending=1_000)
        self._consumer: Any = await self._stream.pull_subscribe("jobs", durable="workers", config=limits)
        self._payload = PAYLOAD.encode()

    async def put_one(self) -> None:
        await self._stream.publish("jobs", self._payload, timeout=PATIENCE_S)

    async def take_some(self, most: int) -> int:
        messages = await self._consumer.fetch(most, timeout=PATIENCE_S)
        await asyncio.gather(*[message.ack_sync(timeout=PATIENCE_S) for message in messages])
        return len(messages)

    async def arrival(self) -> float:
        (message,) = await self._consumer.fetch(1, timeout=PATIENCE_S)
        moment = time.perf_counter()
        await message.ack_sync(timeout=PATIENCE_S)
        return moment

    async def end(self) -> None:
        await self._client.close()

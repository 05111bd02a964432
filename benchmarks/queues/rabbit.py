"""RabbitMQ: a quorum queue on one node, publisher confirms, acknowledgements (which AMQP does not confirm)."""

from __future__ import annotations

import asyncio
import time
from importlib import import_module
from typing import Any

from benchmarks.queues.seam import PAYLOAD, LoopQueue

__all__ = ["RabbitQueue"]


class RabbitQueue(LoopQueue):
    def __init__(self, url: str) -> None:
        super().__init__()
        self._pika = import_module("aio_pika")
        self.run(self._start(url))

    async def _start(self, url: str) -> None:
        self._connection: Any = await self._pika.connect(url)
        self._channel: Any = await self._connection.channel(publisher_confirms=True)
        await self._channel.declare_queue("jobs", durable=True, arguments={"x-queue-type": "quorum"})
        mode = self._pika.DeliveryMode.PERSISTENT
        self._message = self._pika.Message(PAYLOAD.encode(), delivery_mode=mode)

    async def put_one(self) -> None:
        await self._channel.default_exchange.publish(self._message, routing_key="jobs")

    async def begin_taking(self, in_flight: int) -> None:
        """A separate channel, so that the server sends no more items than may be in flight."""
        self._taking: Any = await self._connection.channel()
        await self._taking.set_qos(prefetch_count=in_flight)
        self._arrived: asyncio.Queue[Any] = asyncio.Queue()
        self._jobs: Any = await self._taking.get_queue("jobs")
        self._tag = await self._jobs.consume(self._arrived.put)

    async def end_taking(self) -> None:
        """Closing the channel waits until the server has read the acknowledgements."""
        await self._jobs.cancel(self._tag)
        await self._taking.close()

    async def take_some(self, most: int) -> int:
        message = await self._arrived.get()
        await message.ack()
        taken = 1
        while taken < most and not self._arrived.empty():
            await self._arrived.get_nowait().ack()
            taken += 1
        return taken

    async def arrival(self) -> float:
        message = await self._arrived.get()
        moment = time.perf_counter()
        await message.ack()
        return moment

    async def end(self) -> None:
        await self._connection.close()

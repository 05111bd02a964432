"""The interface of every queue, and the common part of queues with an asyncio client."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol, TypeVar

__all__ = ["GAP_S", "PATIENCE_S", "PAYLOAD", "LoopQueue", "Queue", "check_delays"]

PAYLOAD = "x" * 128
GAP_S = 0.01
"""Pause between two items when the latency of an idle queue is measured."""
PATIENCE_S = 60
T = TypeVar("T")


class Queue(Protocol):
    """A durable queue of items with 128 bytes each."""

    def put(self, count: int) -> None:
        """One producer: each item is confirmed before the next is sent."""
        ...

    def put_together(self, count: int, producers: int) -> None:
        """Several concurrent producers, each as above."""
        ...

    def take(self, count: int) -> int:
        """Take and acknowledge one item after the other; return their number."""
        ...

    def take_together(self, count: int, in_flight: int) -> int:
        """The same with up to `in_flight` items taken and not yet acknowledged."""
        ...

    def delays(self, count: int) -> list[float]:
        """Return the seconds from putting an item into an idle queue until a waiting consumer has it."""
        ...

    def close(self) -> None: ...


def check_delays(given: Sequence[float], arrived: Sequence[float]) -> list[float]:
    return [late - early for late, early in zip(arrived, given, strict=True)]


class LoopQueue(ABC):
    """A queue with an asyncio client: producers and consumers are tasks of one loop."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    # Implemented by each queue

    @abstractmethod
    async def put_one(self) -> None: ...

    @abstractmethod
    async def take_some(self, most: int) -> int:
        """Wait for at least one item, take up to `most`, and acknowledge them all."""

    @abstractmethod
    async def arrival(self) -> float:
        """Wait for an item, acknowledge it, and return the time of its arrival."""

    async def begin_taking(self, in_flight: int) -> None:  # noqa: B027 - most need none
        """Called before the first `take_some` or `arrival`."""

    async def end_taking(self) -> None:  # noqa: B027 - as above
        """Called after the last."""

    @abstractmethod
    async def end(self) -> None: ...

    # Derived methods

    def put(self, count: int) -> None:
        self.run(self._put(count))

    def put_together(self, count: int, producers: int) -> None:
        self.run(self._put_together(count, producers))

    def take(self, count: int) -> int:
        return self.run(self._take(count, 1))

    def take_together(self, count: int, in_flight: int) -> int:
        return self.run(self._take(count, in_flight))

    def delays(self, count: int) -> list[float]:
        return self.run(self._delays(count))

    async def _put(self, count: int) -> None:
        for _ in range(count):
            await asyncio.wait_for(self.put_one(), PATIENCE_S)

    async def _put_together(self, count: int, producers: int) -> None:
        await asyncio.gather(*[self._put(count // producers) for _ in range(producers)])

    async def _take(self, count: int, in_flight: int) -> int:
        await asyncio.wait_for(self.begin_taking(in_flight), PATIENCE_S)
        taken = 0
        while taken < count:
            taken += await asyncio.wait_for(self.take_some(min(in_flight, count - taken)), PATIENCE_S)
        await self.end_taking()
        return taken

    async def _delays(self, count: int) -> list[float]:
        given: list[float] = []
        arrived: list[float] = []

        async def read() -> None:
            for _ in range(count):
                arrived.append(await asyncio.wait_for(self.arrival(), PATIENCE_S))  # noqa: PERF401

        await asyncio.wait_for(self.begin_taking(1), PATIENCE_S)
        reader = asyncio.create_task(read())
        for _ in range(count):
            await asyncio.sleep(GAP_S)
            given.append(time.perf_counter())
            await asyncio.wait_for(self.put_one(), PATIENCE_S)
        await asyncio.wait_for(reader, PATIENCE_S)
        await asyncio.wait_for(self.end_taking(), PATIENCE_S)
        return check_delays(given, arrived)

    def close(self) -> None:
        self.run(self.end())
        self._runner.close()

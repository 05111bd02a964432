"""beanstalkd: its client blocks, so concurrency is one thread and connection per worker."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

from benchmarks.queues.seam import GAP_S, PATIENCE_S, PAYLOAD, check_delays

__all__ = ["BeanstalkQueue"]

_TAKERS = 8
"""Connections that share the items in flight."""


class BeanstalkQueue:
    def __init__(self, port: int) -> None:
        client = import_module("greenstalk").Client
        self._connect: Callable[[], Any] = lambda: client(("127.0.0.1", port))
        self._one = self._connect()
        self._many: list[Any] = []

    def _connections(self, count: int) -> list[Any]:
        while len(self._many) < count:
            self._many.append(self._connect())
        return self._many[:count]

    def put(self, count: int) -> None:
        _put(self._one, count)

    def put_together(self, count: int, producers: int) -> None:
        with ThreadPoolExecutor(producers) as pool:
            list(pool.map(lambda one: _put(one, count // producers), self._connections(producers)))

    def take(self, count: int) -> int:
        return _take(self._one, count, 1)

    def take_together(self, count: int, in_flight: int) -> int:
        shares = [count // _TAKERS + (number < count % _TAKERS) for number in range(_TAKERS)]
        with ThreadPoolExecutor(_TAKERS) as pool:
            takers = self._connections(_TAKERS)
            return sum(pool.map(lambda one, share: _take(one, share, in_flight // _TAKERS), takers, shares))

    def delays(self, count: int) -> list[float]:
        arrived: list[float] = []
        given: list[float] = []

        def read() -> None:
            (taker,) = self._connections(1)
            for _ in range(count):
                job = taker.reserve(timeout=PATIENCE_S)
                arrived.append(time.perf_counter())
                taker.delete(job)

        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(read)
            for _ in range(count):
                time.sleep(GAP_S)
                given.append(time.perf_counter())
                self._one.put(PAYLOAD)
            reading.result()
        return check_delays(given, arrived)

    def close(self) -> None:
        for connection in (self._one, *self._many):
            connection.close()


def _put(connection: Any, count: int) -> None:
    for _ in range(count):
        connection.put(PAYLOAD)


def _take(connection: Any, count: int, in_flight: int) -> int:
    taken = 0
    while taken < count:
        jobs = [connection.reserve(timeout=PATIENCE_S) for _ in range(min(in_flight, count - taken))]
        for job in jobs:
            connection.delete(job)
        taken += len(jobs)
    return taken

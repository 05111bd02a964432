"""procrastinate on PostgreSQL: jobs are deferred one by one, and a worker runs an empty task for each."""

from __future__ import annotations

import asyncio
import logging
import time
from importlib import import_module
from typing import Any

from benchmarks.queues.seam import GAP_S, PATIENCE_S, PAYLOAD, LoopQueue, check_delays

__all__ = ["ProcrastinateQueue"]


class ProcrastinateQueue(LoopQueue):
    def __init__(self, url: str) -> None:
        super().__init__()
        logging.getLogger("procrastinate").setLevel(logging.ERROR)
        module = import_module("procrastinate")
        connector = module.PsycopgConnector(conninfo=url, min_size=34, max_size=34)
        self._app = module.App(connector=connector)
        self._arrived: list[float] = []
        self._job_arrived = asyncio.Event()

        @self._app.task(name="work")  # type: ignore[untyped-decorator]
        async def work(payload: str) -> None:  # noqa: ARG001 - what a job carries
            self._arrived.append(time.perf_counter())
            self._job_arrived.set()

        self._work: Any = work
        self.run(self._start())

    async def _start(self) -> None:
        await self._app.open_async()
        await self._app.schema_manager.apply_schema_async()

    async def put_one(self) -> None:
        await self._work.defer_async(payload=PAYLOAD)

    async def _take(self, count: int, in_flight: int) -> int:
        """A worker stops when the queue is empty."""
        self._arrived.clear()
        await self._app.run_worker_async(
            wait=False,
            concurrency=in_flight,
            delete_jobs="always",
            install_signal_handlers=False,
            listen_notify=False,
        )
        return min(count, len(self._arrived))

    async def _delays(self, count: int) -> list[float]:
        self._arrived.clear()
        self._job_arrived.clear()
        worker = asyncio.create_task(
            self._app.run_worker_async(delete_jobs="always", install_signal_handlers=False)
        )
        await asyncio.sleep(1)  # until it listens
        given: list[float] = []
        for _ in range(count):
            await asyncio.sleep(GAP_S)
            given.append(time.perf_counter())
            await self.put_one()
            await asyncio.wait_for(self._job_arrived.wait(), PATIENCE_S)
            self._job_arrived.clear()
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        return check_delays(given, self._arrived)

    async def take_some(self, most: int) -> int:
        raise NotImplementedError("a worker takes all there are")

    async def arrival(self) -> float:
        raise NotImplementedError("a worker takes all there are")

    async def end(self) -> None:
        await self._app.close_async()

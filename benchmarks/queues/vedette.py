"""Vedette: items are nodes, a consumer is a watch with `mode: consume`, ACK deletes the node."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import vedette
from benchmarks.queues.seam import GAP_S, PATIENCE_S, PAYLOAD, check_delays

__all__ = ["VedetteQueue"]

_ONTOLOGY = "node Job { payload: String, priority: Int = 0, place: Int = 0 }"
_SPAWN = "SPAWN j: Job { payload = $payload }"
_CHUNK = 10_000


class VedetteQueue:
    """`ordering` is the order of delivery; without it, the order of arrival."""

    def __init__(self, folder: Path, *, in_flight: int = 256, ordering: str = "") -> None:
        self._db = vedette.open(folder / "data")
        self._db.define(_ONTOLOGY)
        self._session = self._db.session()
        self._runner = asyncio.Runner()
        order = f", ordering: {ordering}" if ordering else ""
        self._watch = self._db.session().watch(
            f"WATCH j: Job [mode: consume, buffer: {in_flight}, ack_timeout: 600s{order}] RETURN j.payload"
        )
        self._watch.poll()  # the empty `initial`

    def put(self, count: int) -> None:
        """Run in a separate thread, as in a service: the main thread of a process never leads a flush, and waits
        longer.
        """

        def produce() -> None:
            for _ in range(count):
                self._session.execute(_SPAWN, payload=PAYLOAD)

        with ThreadPoolExecutor(1) as pool:
            pool.submit(produce).result()

    def put_together(self, count: int, producers: int) -> None:
        self._runner.run(self._put_together(count, producers))

    async def _put_together(self, count: int, producers: int) -> None:
        async def produce(session: vedette.AsyncSession) -> None:
            for _ in range(count // producers):
                await session.execute(_SPAWN, payload=PAYLOAD)

        await asyncio.gather(*[produce(self._db.async_session()) for _ in range(producers)])

    def put_ranked(self, first: int, count: int) -> None:
        """Create items with two priority keys, many per transaction; not measured."""
        execute = self._session.execute
        for start in range(first, first + count, _CHUNK):
            execute("BEGIN")
            for number in range(start, min(first + count, start + _CHUNK)):
                values = {
                    "payload": PAYLOAD,
                    "priority": number * 7919 % 10,
                    "place": number * 104_729 % 1_000_003,
                }
                execute("SPAWN j: Job { payload = $payload, priority = $priority, place = $place }", values)
            execute("COMMIT")

    def take(self, count: int) -> int:
        return self.take_together(count, 1)

    def take_together(self, count: int, in_flight: int) -> int:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(self._take, count, in_flight).result()

    def _take(self, count: int, in_flight: int) -> int:
        watch, taken = self._watch, 0
        deadline = time.monotonic() + PATIENCE_S
        while taken < count:
            jobs = watch.poll(min(in_flight, count - taken))
            if not jobs and time.monotonic() > deadline:
                raise TimeoutError(f"{taken} of {count} were there within {PATIENCE_S} s")
            watch.ack(*jobs)
            taken += len(jobs)
        return taken

    def delays(self, count: int) -> list[float]:
        arrived: list[float] = []
        given: list[float] = []

        def read() -> None:
            for _ in range(count):
                job = self._watch.next(timeout=PATIENCE_S)
                arrived.append(time.perf_counter())
                assert job is not None
                self._watch.ack(job)

        def produce() -> None:
            for _ in range(count):
                time.sleep(GAP_S)
                given.append(time.perf_counter())
                self._session.execute(_SPAWN, payload=PAYLOAD)

        with ThreadPoolExecutor(2) as pool:
            reading = pool.submit(read)
            pool.submit(produce).result()
            reading.result()
        return check_delays(given, arrived)

    def close(self) -> None:
        self._runner.close()
        self._db.close()

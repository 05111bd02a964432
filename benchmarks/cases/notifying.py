"""Latency from a commit to a waiting reader: the time until `next()` returns, at a steady rate."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from statistics import median
from threading import Thread

import vedette
from benchmarks.case import Case, Contender, Measure, Metric, Setting
from benchmarks.cases.watching import PGLITE, SURREAL
from benchmarks.live.drasi import drasi_module
from benchmarks.live.node import NodeLive
from benchmarks.live.seam import Workload
from benchmarks.live.vedette import ONTOLOGY, SPAWN
from benchmarks.rounds import percentile
from benchmarks.waiting import join_thread, wait_for

__all__ = ["CASES"]

Start = Callable[[Setting], AbstractContextManager[Measure]]
PER_SECOND = 200
_PATIENCE_S = 10


def _numbers(delays: list[float]) -> tuple[float, float]:
    return median(delays) * 1000, percentile(delays, 0.99) * 1000


class _Delays:
    """Vedette: one thread writes at a steady rate, another waits in `next()`."""

    def __init__(self, folder: Path | None) -> None:
        self._db = vedette.open(":memory:" if folder is None else folder / "data")
        self._db.define(ONTOLOGY)
        self._writer, self._reader = self._db.session(), self._db.session()
        self._watch = self._reader.watch("WATCH p: Person WHERE p.rank > 50 [initial: none] RETURN p.key")

    def measure(self, count: int, *, from_commit: bool) -> list[float]:
        """With `from_commit` the clock starts at COMMIT, otherwise when the statement is given."""
        given, arrived = [0.0] * count, [0.0] * count
        execute = self._writer.execute

        def read() -> None:
            for number in range(count):
                if self._watch.next(timeout=_PATIENCE_S) is None:
                    raise TimeoutError(f"event {number} did not come within {_PATIENCE_S} s")
                arrived[number] = time.perf_counter()

        reader = Thread(target=read, daemon=True)
        reader.start()
        due = time.perf_counter()
        for number in range(count):
            due += 1 / PER_SECOND
            time.sleep(max(0, due - time.perf_counter()))
            if from_commit:
                execute("BEGIN")
                execute(SPAWN, key=number, rank=100)
                given[number] = time.perf_counter()
                execute("COMMIT")
            else:
                given[number] = time.perf_counter()
                execute(SPAWN, key=number, rank=100)
        join_thread(reader, f"the reader of {count} events", _PATIENCE_S)
        return [late - early for late, early in zip(arrived, given, strict=True)]

    def close(self) -> None:
        self._db.close()


def _vedette(*, on_disk: bool, from_commit: bool = False) -> Start:
    @contextmanager
    def start(setting: Setting) -> Iterator[Measure]:
        count = int(setting.scale.paced_seconds * PER_SECOND)
        with closing(_Delays(setting.folder if on_disk else None)) as delays:
            yield lambda: _numbers(delays.measure(count, from_commit=from_commit))

    return start


@contextmanager
def _drasi(setting: Setting) -> Iterator[Measure]:
    count = int(setting.scale.paced_seconds * PER_SECOND)

    async def run() -> list[float]:
        drasi = await drasi_module().Drasi.create("delays")
        await drasi.start()
        await drasi.add_python_source("people")
        await drasi.add_query("high", "MATCH (p:Person) WHERE p.rank > 50 RETURN p.key AS key", ["people"])
        given, arrived = [0.0] * count, [0.0] * count

        async def read() -> None:
            stream = await drasi.query_results("high")
            started.set()
            left = count
            while left:
                event = await anext(stream)
                moment = time.perf_counter()
                for result in event["results"]:
                    arrived[result["data"]["key"]] = moment
                    left -= 1

        started = asyncio.Event()
        reader = asyncio.create_task(read())
        await wait_for(started.wait(), "the results of the query", _PATIENCE_S)
        for number in range(count):
            await asyncio.sleep(1 / PER_SECOND)
            change = {"id": f"p{number}", "labels": ["Person"], "properties": {"key": number, "rank": 100}}
            given[number] = time.perf_counter()
            await drasi.push_change("people", {"op": "insert", **change})
        await wait_for(reader, f"all {count} events", _PATIENCE_S)
        await drasi.close()
        return [late - early for late, early in zip(arrived, given, strict=True)]

    yield lambda: _numbers(asyncio.run(run()))


def _node(engine: str) -> Start:
    @contextmanager
    def start(setting: Setting) -> Iterator[Measure]:
        count = int(setting.scale.paced_seconds * PER_SECOND) // 4
        with closing(NodeLive(Workload(pattern="filter"), engine=engine)) as live:
            yield lambda: _numbers(live.delays(count, PER_SECOND))

    return start


_METHOD = (
    "One thread writes 200 times a second, another waits in `next()`. The clock runs from the moment the statement is "
    "given to the engine until the event is in the reader's hands, so it includes finding the plan, the commit and, on "
    "disk, the sync. The peers come a little slower than 200 a second: drasi-lib's writer awaits each push before its "
    "pause, and in Node each change waits for its event. Between two changes the machine sleeps for 5 ms, and wakes "
    "slowly: the same statement takes a fraction of that time in a loop."
)
_FROM_COMMIT = (
    "The same pace, but every change is a transaction, and the clock runs from its COMMIT: what the goal speaks of. "
    "BEGIN and SPAWN are done by then, and the machine is awake."
)

CASES = (
    Case(
        name="watch-delay",
        title="From a change to the reader, in memory",
        metrics=(
            Metric(name="change to next(), in memory, median", unit="ms"),
            Metric(name="change to next(), in memory, 99 of 100", unit="ms"),
        ),
        method=_METHOD,
        contenders=(
            Contender(name="Vedette", start=_vedette(on_disk=False)),
            Contender(name="drasi-lib", start=_drasi, about="push_change to `async for`, one event loop"),
            Contender(
                name=SURREAL, start=_node("surrealdb"), about="mem://, LIVE SELECT; one Node event loop"
            ),
            Contender(name=PGLITE, start=_node("pglite"), about="live.changes; one Node event loop"),
        ),
    ),
    Case(
        name="watch-delay-commit",
        title="From a COMMIT to the reader, in memory",
        metrics=(
            Metric(name="commit to next(), in memory, median", unit="ms", goal=0.1),
            Metric(name="commit to next(), in memory, 99 of 100", unit="ms", goal=1),
        ),
        method=_FROM_COMMIT,
        contenders=(Contender(name="Vedette", start=_vedette(on_disk=False, from_commit=True)),),
    ),
    Case(
        name="watch-delay-disk",
        title="From a change to the reader, durable",
        metrics=(
            Metric(name="change to next(), fsync, median", unit="ms", goal=1),
            Metric(name="change to next(), fsync, 99 of 100", unit="ms", goal=3),
        ),
        method=f"{_METHOD} Nothing is delivered before it is durable. The peers with live queries do not sync.",
        contenders=(Contender(name="Vedette", start=_vedette(on_disk=True), about="durability=fsync"),),
    ),
)

"""The cost of one more watch: the time to create it and its memory."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count as counting

import vedette
from benchmarks.case import Case, Contender, Measure, Metric, Setting
from benchmarks.live.drasi import drasi_module
from benchmarks.live.vedette import ONTOLOGY, SPAWN
from benchmarks.rounds import seconds
from benchmarks.waiting import run_program

__all__ = ["CASES"]

_PEOPLE = 1_000


@contextmanager
def _vedette(setting: Setting) -> Iterator[Measure]:
    count = setting.scale.look_ups
    starts = counting(0, count)
    with vedette.open(":memory:") as db:
        db.define(ONTOLOGY)
        session = db.session()
        for key in range(_PEOPLE):
            session.execute(SPAWN, key=key, rank=key)

        def with_parameters(keys: range) -> None:
            for key in keys:
                session.watch("WATCH p: Person WHERE p.key = $key RETURN p.rank", key=key)

        def with_literals(keys: range) -> None:
            for key in keys:
                session.watch(f"WATCH p: Person WHERE p.key = {key} RETURN p.rank")

        def measure() -> tuple[float, float]:
            first = next(starts)
            keys = range(first, first + count)
            parametrised = seconds(lambda: with_parameters(keys))
            return parametrised / count * 1e6, seconds(lambda: with_literals(keys)) / count * 1e6

        yield measure


@contextmanager
def _drasi(setting: Setting) -> Iterator[Measure]:
    """Few watches: each query is its own task, and closing them is slow."""
    count = max(10, setting.scale.look_ups // 200)

    async def run() -> float:
        drasi = await drasi_module().Drasi.create("watches")
        await drasi.start()
        await drasi.add_python_source("people")
        clock = asyncio.get_running_loop().time
        started = clock()
        for key in range(count):
            text = f"MATCH (p:Person) WHERE p.key = {key} RETURN p.rank AS rank"
            await drasi.add_query(f"query {key}", text, ["people"])
        taken = clock() - started
        await drasi.close()
        return taken

    def measure() -> tuple[float, float]:
        each = asyncio.run(run()) / count * 1e6
        return each, each  # its queries have no parameters

    yield measure


def _memory(who: str, share: float) -> Callable[[Setting], AbstractContextManager[Measure]]:
    """Each round is a new process, `benchmarks.watched`."""

    @contextmanager
    def start(setting: Setting) -> Iterator[Measure]:
        count = int(setting.scale.registered * share)

        def measure() -> tuple[float]:
            command = [sys.executable, "-m", "benchmarks.watched", who, str(count)]
            return (float(run_program(command, _REGISTER_SECONDS)),)

        yield measure

    return start


_REGISTER_SECONDS = 3_000.0
"""Time limit for one process that creates all watches."""
CASES = (
    Case(
        name="watch-make",
        title="Making a watch of a known shape",
        metrics=(
            Metric(name="making a watch, with a parameter", unit="µs", goal=40),
            Metric(name="making a watch, with a new literal", unit="µs", goal=60),
        ),
        method=(
            "`session.watch` over 1,000 people, with the snapshot of what matches (one person or none), until "
            "there are tens of thousands of them. drasi-lib's queries have no parameters."
        ),
        contenders=(
            Contender(name="Vedette", start=_vedette),
            Contender(name="drasi-lib", start=_drasi, about="add_query; 50 a round instead of 10,000"),
        ),
    ),
    Case(
        name="watch-memory",
        title="1,000,000 watches: memory",
        metrics=(Metric(name="memory per watch beyond the first", unit="bytes", goal=400),),
        rounds=lambda scale: scale.load_rounds,
        method=(
            "Growth of the resident set of a fresh process while it makes the watches by statement, divided by their "
            "number. A handle in Python (`session.watch`) would come on top for those that are held."
        ),
        contenders=(
            Contender(name="Vedette", start=_memory("vedette", 1)),
            Contender(name="drasi-lib", start=_memory("drasi", 0.001), about="1,000 queries"),
        ),
    ),
)

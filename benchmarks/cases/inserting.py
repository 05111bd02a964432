"""Single inserts into an in-memory database, from one thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager

from benchmarks.case import Case, Contender, Measure, Metric, Setting
from benchmarks.engines.cozo import CozoEngine
from benchmarks.engines.seam import Engine
from benchmarks.engines.sqlite import SqliteEngine
from benchmarks.engines.surreal import SurrealEngine
from benchmarks.engines.vedette import VedetteEngine
from benchmarks.rounds import rate

__all__ = ["CASES"]


def _into_memory(
    make: Callable[[], Engine], share: float
) -> Callable[[Setting], AbstractContextManager[Measure]]:
    @contextmanager
    def start(setting: Setting) -> Iterator[Measure]:
        count = int(setting.scale.inserts * share)

        def measure() -> tuple[float]:
            with closing(make()) as engine:
                return (rate(count, lambda: engine.insert(0, count)),)

        yield measure

    return start


CASES = (
    Case(
        name="memory-inserts",
        title="Parametrised inserts one by one, in memory, one thread",
        metrics=(Metric(name="inserts in memory", unit="/s", goal=40_000, more_is_better=True),),
        method=(
            "100,000 SPAWNs of a node with two indexed attributes into a fresh database each round, every one a "
            "statement and a transaction of its own; slower peers get fewer (a fifth, a twentieth), which flatters "
            "them if anything."
        ),
        contenders=(
            Contender(name="Vedette", start=_into_memory(VedetteEngine, 1)),
            Contender(name="SQLite", start=_into_memory(SqliteEngine, 1), about=":memory:, autocommit"),
            Contender(name="CozoDB", start=_into_memory(CozoEngine, 0.2), about="mem"),
            Contender(name="SurrealDB", start=_into_memory(SurrealEngine, 0.05), about="mem://"),
        ),
    ),
)

"""The cost of a statement without data access: an identical text, and a text with new constants each time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from itertools import count as counting

from benchmarks.case import Case, Contender, Measure, Metric, Setting
from benchmarks.engines.cozo import CozoEngine
from benchmarks.engines.seam import Engine, check_same
from benchmarks.engines.sqlite import SqliteEngine
from benchmarks.engines.surreal import SurrealEngine
from benchmarks.engines.vedette import VedetteEngine
from benchmarks.rounds import seconds

__all__ = ["CASES"]


def _micros(find: Callable[[range], int], keys: range) -> float:
    found: list[int] = []
    took = seconds(lambda: found.append(find(keys)))
    check_same(found[0], 0)
    return took / len(keys) * 1e6


def _stating(
    make: Callable[[], Engine], share: float
) -> Callable[[Setting], AbstractContextManager[Measure]]:
    @contextmanager
    def start(setting: Setting) -> Iterator[Measure]:
        count = int(setting.scale.look_ups * share)
        starts = counting(0, count)
        with closing(make()) as engine:

            def measure() -> tuple[float, float]:
                first = next(starts)  # no text is ever seen twice
                keys = range(first, first + count)
                return _micros(engine.find, keys), _micros(engine.find_inline, keys)

            yield measure

    return start


CASES = (
    Case(
        name="statements",
        title="Overhead of a statement, warm",
        metrics=(
            Metric(name="statement with a parameter", unit="µs", goal=15),
            Metric(name="statement with a new literal each time", unit="µs", goal=35),
        ),
        method="A look-up by an indexed attribute in an empty database, so that only the statement itself costs.",
        contenders=(
            Contender(name="Vedette", start=_stating(VedetteEngine, 1)),
            Contender(name="SQLite", start=_stating(SqliteEngine, 1), about=":memory:"),
            Contender(name="CozoDB", start=_stating(CozoEngine, 0.3), about="mem"),
            Contender(name="SurrealDB", start=_stating(SurrealEngine, 0.1), about="mem://"),
        ),
    ),
)

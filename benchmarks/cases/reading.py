"""Reading a graph of a million edges: one node by an indexed attribute, and all nodes two edges away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from random import Random

from benchmarks.case import Case, Contender, Measure, Metric, Setting
from benchmarks.engines.cozo import CozoEngine
from benchmarks.engines.seam import EDGES, Engine, Network, check_same, rank_of
from benchmarks.engines.sqlite import SqliteEngine
from benchmarks.engines.surreal import SurrealEngine
from benchmarks.engines.vedette import VedetteEngine
from benchmarks.rounds import seconds

__all__ = ["CASES"]


def _find_micros(engine: Engine, keys: list[int]) -> float:
    found: list[int] = []
    took = seconds(lambda: found.append(engine.find(keys)))
    check_same(found[0], sum(map(rank_of, keys)))
    return took / len(keys) * 1e6


def _walk_micros(engine: Engine, edge: str, keys: list[int]) -> float:
    reached: list[int] = []
    took = seconds(lambda: reached.append(engine.walk(edge, keys)))
    check_same(reached[0], len(keys) * EDGES[edge] ** 2)
    return took / len(keys) * 1e6


def _reading(
    make: Callable[[], Engine], *, size: float = 1, share: float = 1
) -> Callable[[Setting], AbstractContextManager[Measure]]:
    """`size` is the share of the graph that the engine contains, `share` the share of the queries."""

    @contextmanager
    def start(setting: Setting) -> Iterator[Measure]:
        scale = setting.scale
        network = Network.of_size(int(scale.edges * size))
        chance = Random(11)
        look_ups, hops = int(scale.look_ups * share), int(scale.hops * share)
        with closing(make()) as engine:
            engine.fill(network)

            def measure() -> tuple[float, ...]:
                finds = [_find_micros(engine, chance.choices(network.keys, k=look_ups))]
                walks = [
                    _walk_micros(
                        engine, edge, [chance.randrange(network.people_with(edge)) for _ in range(hops)]
                    )
                    for edge in EDGES
                ]
                return (*finds, *walks)

            yield measure

    return start


CASES = (
    Case(
        name="reading",
        title="Reading a graph of 1,000,000 edges in memory",
        metrics=(
            Metric(name="point look-up, indexed attribute", unit="µs", goal=50),
            Metric(name="two hops from one node, 25 rows", unit="µs", goal=200),
            Metric(name="two hops from one node, 100 rows", unit="µs", goal=200),
        ),
        method=(
            "100,000 people, half a million edges with five leaving each of them, half a million with ten leaving "
            "each of half of them; nodes and edges entered in shuffled order. A look-up goes by name; two hops start "
            "at a person found by key and give the names of those reached. Every answer is checked. SurrealDB is "
            "filled with a fiftieth of the graph, because a million edges would take it minutes."
        ),
        contenders=(
            Contender(name="Vedette", start=_reading(VedetteEngine)),
            Contender(
                name="SQLite", start=_reading(SqliteEngine), about=":memory:, tables of edges by (a, b)"
            ),
            Contender(name="CozoDB", start=_reading(CozoEngine, share=0.3), about="mem"),
            Contender(name="SurrealDB", start=_reading(SurrealEngine, size=0.02, share=0.02), about="mem://"),
        ),
    ),
)

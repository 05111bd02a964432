"""CozoDB through pycozo and cozo-embedded: in memory, on SQLite or on RocksDB."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from benchmarks.engines.seam import EDGES, Network, name_of, rank_of

__all__ = ["CozoEngine"]

_PUT = "?[key, name, rank] <- [[$key, $name, $rank]] :put person {key => name, rank}"
_FIND = "?[key, rank] := *person:by_name{name: $name, key}, *person{key, rank}"
_FIND_INLINE = "?[key, rank] := *person:by_name{{name: '{name}', key}}, *person{{key, rank}}"
_WALK = "?[name] := *{edge}{{a: $key, b}}, *{edge}{{a: b, b: c}}, *person{{key: c, name}}"


class CozoEngine:
    def __init__(self, folder: Path | None = None, storage: str = "sqlite") -> None:
        client = import_module("pycozo.client").Client
        self.db = (
            client("mem", dataframe=False)
            if folder is None
            else client(storage, str(folder / "data"), dataframe=False)
        )
        self.db.run(":create person {key: Int => name: String, rank: Int}")
        self.db.run("::index create person:by_name {name}")
        for edge in EDGES:
            self.db.run(f":create {edge} {{a: Int, b: Int}}")

    def insert(self, first: int, count: int) -> None:
        run = self.db.run
        for key in range(first, first + count):
            run(_PUT, {"key": key, "name": name_of(key), "rank": rank_of(key)})

    def fill(self, network: Network) -> None:
        # An import does not keep indexes, so this one is made again.
        self.db.run("::index drop person:by_name")
        people = [[key, name_of(key), rank_of(key)] for key in network.keys]
        self.db.import_relations({"person": {"headers": ["key", "name", "rank"], "rows": people}})
        for edge, pairs in network.edges.items():
            self.db.import_relations({edge: {"headers": ["a", "b"], "rows": [list(pair) for pair in pairs]}})
        self.db.run("::index create person:by_name {name}")

    def find(self, keys: Sequence[int]) -> int:
        run = self.db.run
        return sum(row[1] for key in keys for row in run(_FIND, {"name": name_of(key)}, True)["rows"])

    def find_inline(self, keys: Sequence[int]) -> int:
        run = self.db.run
        return sum(
            row[1] for key in keys for row in run(_FIND_INLINE.format(name=name_of(key)), None, True)["rows"]
        )

    def walk(self, edge: str, keys: Sequence[int]) -> int:
        run = self.db.run
        statement = _WALK.format(edge=edge)
        return sum(len(run(statement, {"key": key}, True)["rows"]) for key in keys)

    def close(self) -> None:
        self.db.close()

"""Vedette through its public API."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import vedette
from benchmarks.engines.seam import Network, name_of, rank_of

__all__ = ["ONTOLOGY", "SPAWN", "VedetteEngine"]

ONTOLOGY = """
node Person { key: Int [indexed], name: String [indexed], rank: Int = 0 }
edge knows(a: Person, b: Person)
edge follows(a: Person, b: Person)
"""
SPAWN = "SPAWN p: Person { key = $key, name = $name, rank = $rank }"
_FIND = "MATCH p: Person WHERE p.name = $name RETURN p.rank"
_WALK = """MATCH a: Person, b: Person, c: Person, {edge}(a, b), {edge}(b, c)
WHERE a.key = $key RETURN c.name"""
_CHUNK = 10_000


class VedetteEngine:
    def __init__(self, folder: Path | None = None, durability: str = "fsync") -> None:
        location = ":memory:" if folder is None else folder / "data"
        self.db = vedette.open(location, settings=vedette.Settings(durability=durability))
        self.db.define(ONTOLOGY)
        self.session = self.db.session()

    def insert(self, first: int, count: int) -> None:
        execute = self.session.execute
        for key in range(first, first + count):
            execute(SPAWN, key=key, name=name_of(key), rank=rank_of(key))

    def fill(self, network: Network) -> None:
        execute = self.session.execute
        ids: dict[int, str] = {}
        for start in range(0, len(network.keys), _CHUNK):
            execute("BEGIN")
            for key in network.keys[start : start + _CHUNK]:
                made = execute(f"{SPAWN} RETURNING id", key=key, name=name_of(key), rank=rank_of(key))
                ids[key] = made.rows[0][0]
            execute("COMMIT")
        for edge, pairs in network.edges.items():
            for start in range(0, len(pairs), _CHUNK):
                execute("BEGIN")
                for a, b in pairs[start : start + _CHUNK]:
                    execute(f"LINK {edge}(#$a, #$b)", a=ids[a], b=ids[b])
                execute("COMMIT")

    def find(self, keys: Sequence[int]) -> int:
        execute = self.session.execute
        return sum(row[0] for key in keys for row in execute(_FIND, name=name_of(key)).rows)

    def find_inline(self, keys: Sequence[int]) -> int:
        execute = self.session.execute
        return sum(
            row[0]
            for key in keys
            for row in execute(f'MATCH p: Person WHERE p.name = "{name_of(key)}" RETURN p.rank').rows
        )

    def walk(self, edge: str, keys: Sequence[int]) -> int:
        execute = self.session.execute
        statement = _WALK.format(edge=edge)
        return sum(len(execute(statement, key=key).rows) for key in keys)

    def close(self) -> None:
        self.db.close()

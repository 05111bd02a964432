"""SurrealDB embedded in Python: in memory, or on SurrealKV.

Whether SurrealKV syncs its commits is read from SURREAL_SYNC_DATA once per process; its default is not to.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.engines.seam import EDGES, Network, name_of, rank_of

__all__ = ["CREATE", "DEFINITIONS", "SurrealEngine", "person", "surreal_url"]

DEFINITIONS = "; ".join(
    [
        "DEFINE TABLE person",
        "DEFINE INDEX by_name ON person FIELDS name",
        *[f"DEFINE TABLE {edge} TYPE RELATION" for edge in EDGES],
    ]
)
CREATE = "CREATE type::thing('person', $key) CONTENT {name: $name, rank: $rank} RETURN NONE"
_FIND = "SELECT VALUE rank FROM person WHERE name = $name"
_WALK = "SELECT VALUE ->{edge}->person->{edge}->person.name FROM ONLY type::thing('person', $key)"
_CHUNK = 1_000


def surreal_url(folder: Path | None, *, sync: bool) -> str:
    """The address of a fresh database; `sync` must be the same for every one of a process."""
    os.environ["SURREAL_SYNC_DATA"] = "true" if sync else "false"
    return "mem://" if folder is None else f"surrealkv://{folder / 'data'}"


def person(key: int) -> dict[str, Any]:
    return {"key": key, "name": name_of(key), "rank": rank_of(key)}


class SurrealEngine:
    def __init__(self, folder: Path | None = None, *, sync: bool = True) -> None:
        url = surreal_url(folder, sync=sync)
        surrealdb = import_module("surrealdb")
        self.record = surrealdb.RecordID
        self.db = surrealdb.Surreal(url)
        self.db.use("bench", "bench")
        self.db.query(DEFINITIONS)

    def insert(self, first: int, count: int) -> None:
        query = self.db.query
        for key in range(first, first + count):
            query(CREATE, {"key": key, "name": name_of(key), "rank": rank_of(key)})

    def fill(self, network: Network) -> None:
        people = [{"id": key, "name": name_of(key), "rank": rank_of(key)} for key in network.keys]
        self._fill("INSERT INTO person $rows RETURN NONE", people)
        for edge, pairs in network.edges.items():
            rows = [{"in": self.record("person", a), "out": self.record("person", b)} for a, b in pairs]
            self._fill(f"INSERT RELATION INTO {edge} $rows RETURN NONE", rows)

    def _fill(self, statement: str, rows: Sequence[dict[str, Any]]) -> None:
        for start in range(0, len(rows), _CHUNK):
            self.db.query(statement, {"rows": rows[start : start + _CHUNK]})

    def find(self, keys: Sequence[int]) -> int:
        query = self.db.query
        return sum(rank for key in keys for rank in query(_FIND, {"name": name_of(key)}))

    def find_inline(self, keys: Sequence[int]) -> int:
        query = self.db.query
        return sum(
            rank
            for key in keys
            for rank in query(f"SELECT VALUE rank FROM person WHERE name = '{name_of(key)}'")
        )

    def walk(self, edge: str, keys: Sequence[int]) -> int:
        query = self.db.query
        statement = _WALK.format(edge=edge)
        return sum(len(query(statement, {"key": key})) for key in keys)

    def close(self) -> None:
        self.db.close()

"""SQLite from the standard library: on disk with a write-ahead log, synced as asked."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from benchmarks.engines.seam import EDGES, Network, name_of, rank_of

__all__ = ["INSERT", "SqliteEngine"]

INSERT = "INSERT INTO person (key, name, rank) VALUES (?, ?, ?)"
_FIND = "SELECT rank FROM person WHERE name = ?"
_WALK = """SELECT c.name FROM {edge} AS first JOIN {edge} AS second ON second.a = first.b
JOIN person AS c ON c.key = second.b WHERE first.a = ?"""


class SqliteEngine:
    def __init__(self, folder: Path | None = None, synchronous: str = "FULL") -> None:
        place = ":memory:" if folder is None else folder / "data.sqlite"
        self.db = sqlite3.connect(place, isolation_level=None, check_same_thread=False)
        if folder is not None:
            self.db.execute("PRAGMA journal_mode = WAL")
            self.db.execute(f"PRAGMA synchronous = {synchronous}")
        self.db.execute("CREATE TABLE person (key INTEGER PRIMARY KEY, name TEXT, rank INTEGER)")
        self.db.execute("CREATE INDEX person_name ON person (name)")
        for edge in EDGES:
            self.db.execute(f"CREATE TABLE {edge} (a INTEGER, b INTEGER, PRIMARY KEY (a, b)) WITHOUT ROWID")

    def insert(self, first: int, count: int) -> None:
        execute = self.db.execute
        for key in range(first, first + count):
            execute(INSERT, (key, name_of(key), rank_of(key)))

    def fill(self, network: Network) -> None:
        self.db.execute("BEGIN")
        self.db.executemany(INSERT, [(key, name_of(key), rank_of(key)) for key in network.keys])
        for edge, pairs in network.edges.items():
            self.db.executemany(f"INSERT INTO {edge} VALUES (?, ?)", pairs)
        self.db.execute("COMMIT")

    def find(self, keys: Sequence[int]) -> int:
        execute = self.db.execute
        return sum(row[0] for key in keys for row in execute(_FIND, (name_of(key),)).fetchall())

    def find_inline(self, keys: Sequence[int]) -> int:
        execute = self.db.execute
        return sum(
            row[0]
            for key in keys
            for row in execute(f"SELECT rank FROM person WHERE name = '{name_of(key)}'").fetchall()
        )

    def walk(self, edge: str, keys: Sequence[int]) -> int:
        execute = self.db.execute
        statement = _WALK.format(edge=edge)
        return sum(len(execute(statement, (key,)).fetchall()) for key in keys)

    def close(self) -> None:
        self.db.close()

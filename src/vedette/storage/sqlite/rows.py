"""Insert rows into the tables of a SQLite file, up to 64 per statement."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Any

from vedette.storage.seam import Batch, ElementRecord

__all__ = [
    "INSERT_JOURNAL",
    "INSERT_JOURNAL_AT",
    "INSERT_JOURNAL_ONCE",
    "apply_batch",
    "insert_rows",
    "insert_statements",
]

MAX_ROWS_PER_STATEMENT = 64
"""Maximum rows per statement. The statement for each number is created on first use."""


def insert_statements(into: str, row: str, ending: str = "") -> Sequence[str]:
    """The statements for 0, 1, 2 … rows."""
    # Only names and placeholders; values are always parameters.
    texts = [
        f"INSERT INTO {into} VALUES {','.join([row] * size)} {ending}"  # noqa: S608 - no part of it comes from a user
        for size in range(1, MAX_ROWS_PER_STATEMENT + 1)
    ]
    return ("", *texts)


_PUT = insert_statements(
    "elements (id, type, attributes, targets)",
    "(?, ?, CAST(? AS TEXT), ?)",
    "ON CONFLICT (id) DO UPDATE SET type = excluded.type, attributes = excluded.attributes, targets = excluded.targets",
)
_JOURNAL_INTO = (
    'journal (tick, "transaction", collection, key, before, after, time_ms, cause, source, partition, seq, event_id,'
    ' "offset")'
)
# The last value is the offset of the row, which is ignored: NULL lets SQLite assign the next one.
_JOURNAL_ROW = "(?, ?, ?, ?, CAST(? AS TEXT), CAST(? AS TEXT), ?, ?, ?, ?, ?, ?, CASE WHEN ? THEN NULL END)"
INSERT_JOURNAL = insert_statements(_JOURNAL_INTO, _JOURNAL_ROW)
INSERT_JOURNAL_AT = insert_statements(
    _JOURNAL_INTO, "(?, ?, ?, ?, CAST(? AS TEXT), CAST(? AS TEXT), ?, ?, ?, ?, ?, ?, ?)"
)
INSERT_JOURNAL_ONCE = insert_statements(
    _JOURNAL_INTO, _JOURNAL_ROW, "ON CONFLICT (source, event_id) WHERE event_id IS NOT NULL DO NOTHING"
)
_DELETE = "DELETE FROM elements WHERE id IN (SELECT value FROM json_each(?))"
_DEFINE = "INSERT INTO definitions (text) VALUES (?)"
_SET_MANY = insert_statements(
    "meta (key, value)", "(?, ?)", "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
)
_UNSET = "DELETE FROM meta WHERE key = ?"


def apply_batch(db: sqlite3.Connection, batch: Batch) -> None:
    """Write everything of a batch except its sequence and its journal rows."""
    if batch.deletes:
        db.execute(_DELETE, (json.dumps(list(batch.deletes)),))
    if batch.puts:
        insert_rows(db, _PUT, _element_rows(batch.puts))
    if batch.definitions:
        db.executemany(_DEFINE, [(text,) for text in batch.definitions])
    if batch.meta:
        _set_facts(db, batch.meta)


def _element_rows(records: Sequence[ElementRecord]) -> Sequence[tuple[Any, ...]]:
    """Records are rows already, except for the targets of edges."""
    return [
        record if record[3] is None else (record[0], record[1], record[2], json.dumps(record[3]))
        for record in records
    ]


def insert_rows(db: sqlite3.Connection, statements: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> int:
    """Insert the rows and return the rowid of the last one."""
    last = 0
    for start in range(0, len(rows), MAX_ROWS_PER_STATEMENT):
        some = rows[start : start + MAX_ROWS_PER_STATEMENT]
        last = db.execute(statements[len(some)], list(chain.from_iterable(some))).lastrowid or 0
    return last


def _set_facts(db: sqlite3.Connection, facts: Sequence[tuple[str, str]]) -> None:
    last = dict(facts)
    insert_rows(db, _SET_MANY, [fact for fact in last.items() if fact[1]])
    forgotten = [(key,) for key, value in last.items() if not value]
    if forgotten:
        db.executemany(_UNSET, forgotten)

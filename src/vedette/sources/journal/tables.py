"""The tables of the journal, written in the types of `storage/sql_database.py`.

sources       one row per source; `token` is the resume token of its reader
partitions    the order domains of each source; `id` is unique in the journal
changes       the log; `offset` increases in commit order and is never reused
images        the last image of every document
quarantine    changes that could not be processed; `number` counts them all, including deleted rows
meta          first: first offset that was not trimmed    last: last offset that was assigned
"""

from __future__ import annotations

from vedette.sources.records import ChangeRow
from vedette.storage.sql_database import DatabaseSchema

__all__ = ["CHANGE_COLUMNS", "JOURNAL_SCHEMA"]

_QUOTED = {"offset", "transaction"}
CHANGE_COLUMNS = tuple(f'"{name}"' if name in _QUOTED else name for name in ChangeRow._fields)
"""Columns of `changes` in the order of the fields of `ChangeRow`."""

JOURNAL_SCHEMA = DatabaseSchema(
    name="vedette_collections",
    version=2,
    remedy="remove it and add the sources again",
    counter="last",
    notifies=True,
    tables=(
        """CREATE TABLE sources (name TEXT PRIMARY KEY, kind TEXT NOT NULL, address TEXT NOT NULL,
            tenant TEXT NOT NULL, paused BOOLEAN NOT NULL, options TEXT NOT NULL, token TEXT) STRICT""",
        """CREATE TABLE partitions (id SERIAL, source TEXT NOT NULL, number INTEGER NOT NULL, epoch INTEGER NOT NULL,
            seq INTEGER NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL, UNIQUE (source, number)) STRICT""",
        """CREATE TABLE changes ("offset" INTEGER PRIMARY KEY, source TEXT NOT NULL, tenant TEXT NOT NULL,
            partition INTEGER NOT NULL, epoch INTEGER NOT NULL, seq INTEGER NOT NULL, event_id TEXT NOT NULL,
            collection TEXT NOT NULL, key TEXT NOT NULL, op TEXT NOT NULL, before BLOB, after BLOB,
            before_known BOOLEAN NOT NULL, time_ms INTEGER NOT NULL, appended_ms INTEGER NOT NULL,
            "transaction" TEXT NOT NULL, UNIQUE (source, event_id)) STRICT""",
        """CREATE TABLE images (source TEXT NOT NULL, collection TEXT NOT NULL, key TEXT NOT NULL, image BLOB NOT NULL,
            PRIMARY KEY (source, collection, key)) STRICT, WITHOUT ROWID""",
        """CREATE TABLE quarantine (number SERIAL, source TEXT NOT NULL, event_id TEXT NOT NULL, reason TEXT NOT NULL,
            excerpt TEXT NOT NULL, time_ms INTEGER NOT NULL, UNIQUE (source, event_id)) STRICT""",
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT",
        "INSERT INTO meta VALUES ('first', 1), ('last', 0)",
    ),
)

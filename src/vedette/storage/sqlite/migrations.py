"""The format of a database on disk, version by version. Written out here before any code uses it.

    definitions   ontology texts in the order in which they were defined
    elements      every node and edge as it is now; `targets` is NULL for a node
    journal       every change, append-only; images are JSON texts
    pending       (SQLite) batches that are not in the other tables yet, see pending.py; empty after closing
    meta          small named facts; those of the store itself:
                  store.epoch    moment of creation in ms       store.boot   openings so far
                  store.tick     highest durable tick           store.first  first journal offset not trimmed away
                  store.batch    (PostgreSQL) the last batch appended, "<boot>.<number>"

JSON is kept as text, so that any SQLite or PostgreSQL tool can read it. An element keeps the `created` number of its
first insertion for life: edges are read back in that order, which is an order of dependency, because an edge can only
join what is already there. (A table WITHOUT ROWID ordered by id was tried: slower to fill, since ids are not ordered.)

A migration is never edited once it was released; a new one goes to the end.
"""

from __future__ import annotations

from dataclasses import dataclass

from vedette.errors import StoreError

__all__ = ["APPLICATION_ID", "POSTGRES_MIGRATIONS", "SQLITE_MIGRATIONS", "Migration", "pending_migrations"]

APPLICATION_ID = 0x56445454
"""`VDTT` in ASCII; identifies a file of Vedette."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One migration step. `{schema}` in a statement is the quoted PostgreSQL schema."""

    version: int
    summary: str
    statements: tuple[str, ...]


SQLITE_MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        version=1,
        summary="definitions, elements, journal, meta",
        statements=(
            "CREATE TABLE definitions (position INTEGER PRIMARY KEY, text TEXT NOT NULL)",
            """CREATE TABLE elements (
                created INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, type TEXT NOT NULL,
                targets TEXT, attributes TEXT NOT NULL)""",
            """CREATE TABLE journal (
                "offset" INTEGER PRIMARY KEY AUTOINCREMENT, source TEXT NOT NULL, partition INTEGER NOT NULL,
                seq INTEGER NOT NULL, event_id TEXT, tick INTEGER NOT NULL, "transaction" TEXT NOT NULL, cause TEXT,
                collection TEXT NOT NULL, key TEXT NOT NULL, before TEXT, after TEXT, time_ms INTEGER NOT NULL)""",
            """CREATE UNIQUE INDEX journal_events ON journal (source, event_id)
                WHERE event_id IS NOT NULL""",
            "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
        ),
    ),
    Migration(
        version=2,
        summary="pending",
        statements=("CREATE TABLE pending (number INTEGER PRIMARY KEY, batch BLOB NOT NULL)",),
    ),
)
"""For SQLite; the version of a file is its `user_version`."""

POSTGRES_MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        version=1,
        summary="definitions, elements, journal, meta",
        statements=(
            """CREATE TABLE {schema}.definitions (
                position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, text text NOT NULL)""",
            """CREATE TABLE {schema}.elements (
                created bigint GENERATED ALWAYS AS IDENTITY, id text COLLATE "C" PRIMARY KEY, type text NOT NULL,
                targets text, attributes text NOT NULL)""",
            """CREATE TABLE {schema}.journal (
                "offset" bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, source text NOT NULL,
                partition integer NOT NULL, seq bigint NOT NULL, event_id text, tick bigint NOT NULL,
                "transaction" text NOT NULL, cause text, collection text NOT NULL, key text NOT NULL,
                before text, after text, time_ms bigint NOT NULL)""",
            """CREATE UNIQUE INDEX journal_events ON {schema}.journal (source, event_id)
                WHERE event_id IS NOT NULL""",
            'CREATE TABLE {schema}.meta (key text COLLATE "C" PRIMARY KEY, value text NOT NULL)',
        ),
    ),
)
"""For PostgreSQL, one schema per database; the version is the meta row `store.version`."""


def pending_migrations(version: int, migrations: tuple[Migration, ...], place: str) -> tuple[Migration, ...]:
    """Return the steps that a database of this version needs. Raises E6004 if it is newer."""
    known = migrations[-1].version
    if version > known:
        raise StoreError(
            "E6004",
            f"{place} has format {version}, but this version of Vedette reads formats up to {known}: "
            "open it with the version that wrote it, or a newer one; nothing was changed",
            fields={"place": place, "format": version, "known": known},
        )
    return tuple(step for step in migrations if step.version > version)

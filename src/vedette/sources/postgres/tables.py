"""Find the tables of a PostgreSQL database that can be watched, and the columns that identify their rows."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import psycopg
from psycopg import sql

from vedette.errors import SourceError
from vedette.sources.postgres.position import WatchedTable

__all__ = ["identifier", "list_tables", "select_tables"]

# A row is identified by what the server sends for a deleted row: the index of REPLICA IDENTITY, else the primary key.
# Unlogged and temporary tables are not in the WAL; partitions are reported as rows of their parent table.
_TABLES = """
    SELECT c.oid::int8, n.nspname::text, c.relname::text, c.relreplident::text, coalesce(
        (SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_index i JOIN pg_attribute a
             ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)
         WHERE i.indrelid = c.oid AND CASE WHEN c.relreplident = 'i' THEN i.indisreplident ELSE i.indisprimary END),
        '{}')
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p'
        AND n.nspname NOT IN ('pg_catalog', 'information_schema')
    ORDER BY 2, 3
"""


def list_tables(db: psycopg.Connection[Any]) -> dict[int, tuple[WatchedTable, str]]:
    """Return the tables by OID, each with the reason why it cannot be watched; the reason is empty if it can."""
    return {
        oid: (WatchedTable(oid=oid, schema=schema, name=name, keys=tuple(keys)), _problem(identity, keys))
        for oid, schema, name, identity, keys in db.execute(_TABLES).fetchall()
    }


def select_tables(db: psycopg.Connection[Any], chosen: Collection[str]) -> dict[int, WatchedTable]:
    """Return the selected tables, or all watchable tables of `public`.

    Raises E6106 for a selected table that cannot be watched.
    """
    there = list_tables(db)
    if not chosen:
        return {
            oid: table for oid, (table, problem) in there.items() if table.schema == "public" and not problem
        }
    paths = {table.path: (table, problem) for table, problem in there.values()}
    found = {}
    for name in chosen:
        path = name if "." in name else f"public.{name}"
        table, problem = paths.get(path, (None, "does not exist, or is no table that is kept in the log"))
        if table is None or problem:
            raise SourceError("E6106", f"the table {path} {problem}")
        found[table.oid] = table
    return found


def identifier(table: WatchedTable) -> sql.Identifier:
    return sql.Identifier(table.schema, table.name)


def _problem(identity: str, keys: list[str]) -> str:
    if identity == "n":
        return (
            "has REPLICA IDENTITY NOTHING, and the server would refuse to change rows of it once it is watched: "
            "ALTER TABLE … REPLICA IDENTITY DEFAULT"
        )
    return "" if keys else "has no primary key: a document needs a key to be known by"

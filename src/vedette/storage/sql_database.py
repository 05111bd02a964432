"""The SQL seam of the journal and the registry: a SQLite file or a PostgreSQL schema behind one interface.

Each statement is written once, in the common part of both dialects, with three conventions that the implementations
translate:

    ?                 a value; a literal `?` cannot occur in a statement
    = ANY(?)          membership in a list of values
    greatest(a, b)    the larger of two values

Table definitions use the types of `TABLE_TYPES`. Texts compare by bytes in both databases. The reasons are in
`docs/design/decisions/0060-one-sql-seam.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from vedette.errors import StoreError

__all__ = ["NO_LIMIT", "DatabaseSchema", "SqlDatabase", "SqlTransaction", "open_database", "wrong_format"]

NO_LIMIT = 2**63 - 1
"""Value for `LIMIT ?` that limits nothing. SQLite refuses NULL there, PostgreSQL refuses -1."""

TABLE_TYPES = {  # type in a table definition: type in SQLite, type in PostgreSQL
    "SERIAL": ("INTEGER PRIMARY KEY AUTOINCREMENT", "bigserial PRIMARY KEY"),
    "INTEGER": ("INTEGER", "bigint"),
    "BOOLEAN": ("INTEGER", "boolean"),
    "BLOB": ("BLOB", "bytea"),
    "TEXT": ("TEXT", 'text COLLATE "C"'),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSchema:
    """The tables of a database and the version of their format."""

    name: str
    """Name of the PostgreSQL schema that holds the tables."""
    version: int
    """Version of the stored format. A database with another version is refused with E6004."""
    remedy: str
    """What an operator does with a database of another version; the end of the error text."""
    tables: tuple[str, ...]
    """Statements that create the tables and their first rows, executed once."""
    counter: str
    """Key of a row of the table `meta` whose value every relevant commit changes. PostgreSQL needs it to see changes;
    SQLite has its own counter."""
    notifies: bool = False
    """True if callers use `wait_for_commit`. A PostgreSQL connection then listens for notifications."""


class SqlTransaction(Protocol):
    """Statements on one connection. Valid inside the `with` block that returned it."""

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query or a RETURNING clause; an empty list for other statements."""
        ...

    def execute_many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None: ...

    def bulk_insert(self, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert many rows: 64 per statement in SQLite, COPY in PostgreSQL."""
        ...

    def notify(self) -> None:
        """Wake `wait_for_commit` in other processes when this transaction commits. SQLite needs no notification."""
        ...


class SqlDatabase(Protocol):
    """A database with serialized writers. Any process may open it, and threads may share it. Raises StoreError."""

    @property
    def address(self) -> str:
        """Address with which another process opens the same database. It may contain a password."""
        ...

    @property
    def place(self) -> str:
        """The address without a password, for error texts."""
        ...

    def read(self) -> AbstractContextManager[SqlTransaction]:
        """Each statement sees the latest commit."""
        ...

    def snapshot(self) -> AbstractContextManager[SqlTransaction]:
        """All statements see one commit."""
        ...

    def write(self) -> AbstractContextManager[SqlTransaction]:
        """One transaction. It commits at the end of the block and rolls back on an exception. Writers never overlap,
        in this and in other processes."""
        ...

    def change_counter(self) -> object:
        """Return a value that differs after every relevant commit."""
        ...

    def wait_for_commit(self, counter: object, seconds: float) -> None:
        """Wait until another commit than the one of `counter` exists, or until the timeout. May return early."""
        ...

    def close(self) -> None: ...


def open_database(address: str | Path, schema: DatabaseSchema) -> SqlDatabase:
    """Open a PostgreSQL URL or a SQLite file, and create the tables if they do not exist.

    Raises E6004 if the database has another format version.
    """
    text = str(address)
    if text.startswith(("postgresql://", "postgres://")):
        from vedette.storage.postgres.database import PostgresDatabase

        return PostgresDatabase(text, schema)
    from vedette.storage.sqlite.database import SqliteDatabase

    return SqliteDatabase(Path(text), schema)


def wrong_format(place: str, version: int, schema: DatabaseSchema) -> StoreError:
    text = f"{place} has format {version}, this version of Vedette needs format {schema.version}: {schema.remedy}"
    return StoreError("E6004", text, fields={"place": place, "format": version, "needed": schema.version})

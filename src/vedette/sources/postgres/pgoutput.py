"""Decode the messages of `pgoutput`, protocol version 1. No I/O.

Only the messages that a reader of changes needs: transactions, relations and rows. Values are text as the server
writes them; `None` is null, `UNCHANGED` is a large value that the update did not change and the server did not send.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from vedette.errors import SourceError

__all__ = [
    "UNCHANGED",
    "Begin",
    "Column",
    "Commit",
    "Deleted",
    "Inserted",
    "Message",
    "Relation",
    "Truncated",
    "Updated",
    "read_message",
]


class _Unchanged:
    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED = _Unchanged()
Cell: TypeAlias = "bytes | _Unchanged | None"


class Column(NamedTuple):
    name: str
    type: int
    """OID of the column type."""
    key: bool


@dataclass(frozen=True, slots=True)
class Begin:
    lsn: int
    """LSN of the commit."""
    time_us: int
    """Microseconds since 2000-01-01."""
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    lsn: int
    end_lsn: int


@dataclass(frozen=True, slots=True)
class Relation:
    id: int
    schema: str
    name: str
    identity: str
    """d: primary key, f: all columns, n: nothing, i: an index."""
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Inserted:
    relation: int
    new: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Updated:
    relation: int
    old: tuple[Cell, ...] | None
    full: bool
    """True if `old` is the whole row; otherwise only its key columns are set."""
    new: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Deleted:
    relation: int
    old: tuple[Cell, ...]
    full: bool


@dataclass(frozen=True, slots=True)
class Truncated:
    relations: tuple[int, ...]


Message: TypeAlias = Begin | Commit | Relation | Inserted | Updated | Deleted | Truncated


def read_message(data: bytes) -> Message | None:
    """Decode one message; None for messages that are not about rows (types, origins, logical messages)."""
    reader = _Reader(data)
    try:
        return _message(reader)
    except (IndexError, UnicodeDecodeError) as problem:
        raise SourceError("E6106", f"a message of pgoutput cannot be read: {data[:40]!r}") from problem


def _message(reader: _Reader) -> Message | None:
    match reader.character():
        case "B":
            return Begin(lsn=reader.number(8), time_us=reader.number(8), xid=reader.number(4))
        case "C":
            reader.number(1)
            return Commit(lsn=reader.number(8), end_lsn=reader.number(8))
        case "R":
            return _relation(reader)
        case "I":
            relation = reader.number(4)
            reader.character()
            return Inserted(relation, reader.row())
        case "U":
            relation, kind, old = reader.number(4), reader.character(), None
            full = kind == "O"
            if kind in "KO":
                old = reader.row()
                reader.character()
            return Updated(relation, old, full, reader.row())
        case "D":
            relation, kind = reader.number(4), reader.character()
            return Deleted(relation, reader.row(), kind == "O")
        case "T":
            count = reader.number(4)
            reader.number(1)
            return Truncated(tuple(reader.number(4) for _ in range(count)))
    return None


def _relation(reader: _Reader) -> Relation:
    id, schema, name = reader.number(4), reader.text(), reader.text()
    identity = reader.character()
    columns = []
    for _ in range(reader.number(2)):
        key = bool(reader.number(1) & 1)
        column, kind = reader.text(), reader.number(4)
        reader.number(4)
        columns.append(Column(column, kind, key))
    return Relation(id, schema or "pg_catalog", name, identity, tuple(columns))


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def _take(self, count: int) -> bytes:
        part = self._data[self._at : self._at + count]
        if len(part) < count:
            raise IndexError
        self._at += count
        return part

    def character(self) -> str:
        return self._take(1).decode("ascii")

    def number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big")

    def text(self) -> str:
        end = self._data.index(0, self._at)
        text = self._take(end - self._at).decode()
        self._at += 1
        return text

    def row(self) -> tuple[Cell, ...]:
        return tuple(self._cell() for _ in range(self.number(2)))

    def _cell(self) -> Cell:
        match self.character():
            case "n":
                return None
            case "u":
                return UNCHANGED
            case _:
                return self._take(self.number(4))

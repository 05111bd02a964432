"""Position of a PostgreSQL reader: the known tables, the snapshots of their scans, and the LSN.

The position is the reader's token, one line of JSON that the journal stores together with the changes that led there:

    lsn       everything committed up to here is in the journal; the slot is never ahead of it
    partial   commit LSN of a transaction and the number of its messages that are in the journal too
    tables    by OID: schema, name, key columns, and the snapshot of the scan

No I/O.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vedette.sources.postgres.pgoutput import Begin, Relation

__all__ = ["SlotPosition", "WatchedTable", "lsn_text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedTable:
    oid: int
    schema: str
    name: str
    keys: tuple[str, ...]
    """Columns that identify a document, in table order."""
    snapshot: str = ""
    """`xmin:xmax:xip,…`: the snapshot of the scan; empty if the table was not scanned."""
    scanned: int = 0
    """End of the server's WAL when the scan began; later commits are not in the scan."""

    @property
    def path(self) -> str:
        return f"{self.schema}.{self.name}"

    def has_same_key(self, other: WatchedTable) -> bool:
        """True if documents keep their collection and keys, so that no new comparison is needed."""
        return (self.path, self.keys) == (other.path, other.keys)

    def matches_relation(self, relation: Relation) -> bool:
        """True if a row message of this relation is about this table as we know it."""
        told = {column.name for column in relation.columns if column.key}
        keyed = told >= set(self.keys) if relation.identity == "f" else told == set(self.keys)
        return keyed and (relation.schema, relation.name) == (self.schema, self.name)

    def scan_included(self, begin: Begin) -> bool:
        """True if the scan saw that transaction. Transaction ids wrap around, LSNs do not, so the id is compared only
        for commits before the scan."""
        return bool(self.snapshot) and begin.lsn < self.scanned and _saw(self.snapshot, begin.xid)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotPosition:
    lsn: int
    partial_transaction: tuple[int, int] = (0, 0)
    tables: Mapping[int, WatchedTable] = field(default_factory=dict)

    @classmethod
    def parse(cls, token: str | None) -> SlotPosition | None:
        """None for a token without the field."""
        facts: dict[str, Any] = json.loads(token or "{}")
        if "tables" not in facts:
            return None
        tables = {int(oid): _table(int(oid), table) for oid, table in facts["tables"].items()}
        number, done = facts["partial"]
        return cls(lsn=_lsn(facts["lsn"]), partial_transaction=(_lsn(number), done), tables=tables)

    @property
    def token(self) -> str:
        number, done = self.partial_transaction
        tables = {
            table.oid: [table.schema, table.name, table.keys, table.snapshot, lsn_text(table.scanned)]
            for table in self.tables.values()
        }
        return json.dumps({"lsn": lsn_text(self.lsn), "partial": [lsn_text(number), done], "tables": tables})

    def covers(self, begin: Begin) -> bool:
        """True if the whole transaction is in the journal."""
        return begin.lsn < self.lsn

    def with_tables(self, tables: Iterable[WatchedTable], without: Iterable[int] = ()) -> SlotPosition:
        known = {oid: table for oid, table in self.tables.items() if oid not in set(without)}
        known |= {table.oid: table for table in tables}
        return SlotPosition(lsn=self.lsn, partial_transaction=self.partial_transaction, tables=known)


def lsn_text(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def _lsn(text: str) -> int:
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def _table(oid: int, facts: list[Any]) -> WatchedTable:
    schema, name, keys, snapshot, scanned = facts
    return WatchedTable(
        oid=oid, schema=schema, name=name, keys=tuple(keys), snapshot=snapshot, scanned=_lsn(scanned)
    )


def _saw(snapshot: str, xid: int) -> bool:
    """Messages have the lower 32 bits of a transaction id; the snapshot gives the epoch."""
    low, high, running = snapshot.split(":")
    whole = (int(high) & ~0xFFFFFFFF) | xid
    if whole - int(high) > 2**31:
        whole -= 2**32
    elif int(high) - whole > 2**31:
        whole += 2**32
    return whole < int(low) or (whole < int(high) and str(whole) not in running.split(","))

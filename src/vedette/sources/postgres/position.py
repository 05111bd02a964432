"""The position of a PostgreSQL reader: the known tables, the snapshots of their scans, and the LSN. No I/O.

The position is the reader's resume token: JSON that the journal stores together with the changes that led there.

    version   TOKEN_VERSION; a token of another version is ignored, and the source is scanned again
    lsn       everything committed up to here is in the journal; the slot is never ahead of it
    partial   {"lsn", "messages"}: commit LSN of a transaction, and how many of its messages are in the journal too
    tables    {"oid", "schema", "name", "keys", "snapshot", "scan_lsn"} of each table
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vedette.sources.postgres.pgoutput import Begin, Relation

__all__ = ["TOKEN_VERSION", "SlotPosition", "WatchedTable", "lsn_text"]

TOKEN_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedTable:
    """A table that the reader follows."""

    oid: int
    schema: str
    name: str
    keys: tuple[str, ...]
    """Columns that identify a document, in table order."""
    snapshot: str = ""
    """`xmin:xmax:xip,…`: the snapshot of the scan; empty if the table was not scanned."""
    scan_lsn: int = 0
    """End of the server's WAL when the scan started; later commits are not in the scan."""

    @property
    def path(self) -> str:
        return f"{self.schema}.{self.name}"

    def has_same_key(self, other: WatchedTable) -> bool:
        """True if both have the same collection and key columns, so that no new scan is needed."""
        return (self.path, self.keys) == (other.path, other.keys)

    def matches_relation(self, relation: Relation) -> bool:
        """True if a relation message describes this table with the known name and key columns."""
        key_columns = {column.name for column in relation.columns if column.key}
        same_key = (
            key_columns >= set(self.keys) if relation.identity == "f" else key_columns == set(self.keys)
        )
        return same_key and (relation.schema, relation.name) == (self.schema, self.name)

    def scan_included(self, begin: Begin) -> bool:
        """True if the scan saw the transaction. Transaction ids wrap around and LSNs do not, so the id is compared
        only for commits before the scan."""
        return bool(self.snapshot) and begin.lsn < self.scan_lsn and _is_in_snapshot(self.snapshot, begin.xid)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotPosition:
    """The replication position up to which the journal has all changes, and the tables that were scanned."""

    lsn: int
    partial_transaction: tuple[int, int] = (0, 0)
    """Commit LSN of a partly appended transaction, and the number of its messages in the journal."""
    tables: Mapping[int, WatchedTable] = field(default_factory=dict)

    @classmethod
    def parse(cls, token: str | None) -> SlotPosition | None:
        """Return None for a missing token and for one of another version."""
        stored: dict[str, Any] = json.loads(token or "{}")
        if stored.get("version") != TOKEN_VERSION:
            return None
        partial = stored["partial"]
        return cls(
            lsn=_parse_lsn(stored["lsn"]),
            partial_transaction=(_parse_lsn(partial["lsn"]), partial["messages"]),
            tables={table["oid"]: _parse_table(table) for table in stored["tables"]},
        )

    @property
    def token(self) -> str:
        lsn, messages = self.partial_transaction
        tables = [
            {
                "oid": table.oid,
                "schema": table.schema,
                "name": table.name,
                "keys": table.keys,
                "snapshot": table.snapshot,
                "scan_lsn": lsn_text(table.scan_lsn),
            }
            for table in self.tables.values()
        ]
        partial = {"lsn": lsn_text(lsn), "messages": messages}
        return json.dumps(
            {"version": TOKEN_VERSION, "lsn": lsn_text(self.lsn), "partial": partial, "tables": tables}
        )

    def covers(self, begin: Begin) -> bool:
        """True if the whole transaction is in the journal."""
        return begin.lsn < self.lsn

    def with_tables(self, tables: Iterable[WatchedTable], without: Iterable[int] = ()) -> SlotPosition:
        """Return the position with tables added or replaced, and the tables with the OIDs `without` removed."""
        known = {oid: table for oid, table in self.tables.items() if oid not in set(without)}
        known |= {table.oid: table for table in tables}
        return SlotPosition(lsn=self.lsn, partial_transaction=self.partial_transaction, tables=known)


def lsn_text(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def _parse_lsn(text: str) -> int:
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def _parse_table(stored: dict[str, Any]) -> WatchedTable:
    return WatchedTable(
        oid=stored["oid"],
        schema=stored["schema"],
        name=stored["name"],
        keys=tuple(stored["keys"]),
        snapshot=stored["snapshot"],
        scan_lsn=_parse_lsn(stored["scan_lsn"]),
    )


def _is_in_snapshot(snapshot: str, xid: int) -> bool:
    """True if the snapshot sees the transaction. Messages have the lower 32 bits of its id; the snapshot has all."""
    low, high, running = snapshot.split(":")
    whole = (int(high) & ~0xFFFFFFFF) | xid
    if whole - int(high) > 2**31:
        whole -= 2**32
    elif int(high) - whole > 2**31:
        whole += 2**32
    return whole < int(low) or (whole < int(high) and str(whole) not in running.split(","))

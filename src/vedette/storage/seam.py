"""The storage seam: what the engine asks of a store, and the records that it exchanges with it.

A store keeps one database (tenant): its definitions, its current elements, and the append-only journal of their
changes. It decides nothing: values are encoded and ordered by its caller.

    engine ── Batch ──▶ Store.append                 one durable transaction: elements, journal, meta
    engine ◀─ StoreInfo ── Store.open_for_writing    at open
    any reader ◀─ JournalRow ── Store.read           ranges of the journal, by offset

Acknowledge a commit after `append` has returned. A batch is not durable before that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

__all__ = [
    "RESERVED_PREFIX",
    "Batch",
    "Durability",
    "ElementRecord",
    "JournalRow",
    "Store",
    "StoreCatalog",
    "StoreInfo",
]

Durability = Literal["fsync", "relaxed"]
"""`fsync`: acknowledged means on disk. `relaxed`: a power cut may lose the last moments, but never half a commit."""

RESERVED_PREFIX = "store."
"""Prefix of the store's own meta keys (epoch, boot, tick …); a batch may not set them."""


class ElementRecord(NamedTuple):
    """A stored node or edge. A tuple, because a million of them are read at open."""

    id: str
    type: str
    attributes: bytes
    """JSON object in UTF-8: timestamps as text, durations in ms."""
    targets: tuple[str, ...] | None = None
    """Ids of the edge's targets, in order; None for a node."""


class JournalRow(NamedTuple):
    """One change in the journal. A tuple in column order, so that rows reach the database without a copy."""

    tick: int
    transaction: str
    collection: str
    key: str
    before: bytes | None
    """JSON image before the change; None for a creation. Images of edges have `_targets`."""
    after: bytes | None
    time_ms: int
    cause: str | None = None
    source: str = "graph"
    partition: int = 0
    seq: int = 0
    """Increases per (source, partition). For the graph it is the commit sequence."""
    event_id: str | None = None
    """UNIQUE per source if set: a repeated append is ignored (external sources)."""
    offset: int = 0
    """Assigned by the store at append (ignored there), increasing, never reused; may have gaps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The contents of one flush: the net effect of one or more commits, in order."""

    sequence: int = 0
    """The highest sequence in the batch; never below the store's. 0 if the batch has none (external sources)."""
    puts: Sequence[ElementRecord] = ()
    """New and changed elements. New edges in order of creation: an edge after the edges that it targets."""
    deletes: Sequence[str] = ()
    """Ids; an id is never in both."""
    journal: Sequence[JournalRow] = ()
    definitions: Sequence[str] = ()
    """Ontology texts to append to those stored."""
    meta: Sequence[tuple[str, str]] = ()
    """Named values to set (key, value); an empty value deletes the key. No key begins with RESERVED_PREFIX."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreInfo:
    """What a store returns when it is opened."""

    epoch: int
    """Identifies this log: its creation time in ms, so that a new log is never mistaken for a lost one."""
    boot_count: int
    """Number of openings, durable; part of every new id, which makes ids unique across restarts."""
    sequence: int
    definitions: tuple[str, ...]
    meta: dict[str, str] = field(default_factory=dict)


class Store(Protocol):
    """The store of one database. Every method may raise StoreError; none leaves a half-written batch.

    Thread-safe. `read` and `elements` do not wait for a running `append`.
    """

    def open_for_writing(self) -> StoreInfo:
        """Read the store info and increment the boot count durably. Called once, before anything else.

        Afterwards `append` raises E6002 if another process has opened the database, so a writer that lost its lock
        unnoticed does no harm.
        """
        ...

    def info(self) -> StoreInfo:
        """Return the store info without incrementing the boot count, for a reload after a failed flush."""
        ...

    def elements(self) -> Iterator[ElementRecord]:
        """Every element, nodes before the edges that target them (edges may target edges; those come later still)."""
        ...

    def append(self, batch: Batch) -> int:
        """Make the batch durable in one transaction and return the last offset of the journal. All or nothing."""
        ...

    def read(self, after: int, limit: int) -> Sequence[JournalRow]:
        """Up to `limit` journal rows with offset > `after`, in order. Raises E6006 if `after` was trimmed."""
        ...

    def last_offset(self) -> int: ...

    def trim(self, before_time_ms: int) -> int:
        """Delete the journal up to the first row that is not older. Return the first offset that is kept, or the next
        one.

        Only a prefix is deleted: an old row after a newer one stays, so the journal has no gaps.
        """
        ...

    def close(self) -> None: ...


class StoreCatalog(Protocol):
    """The databases of a data directory, a PostgreSQL database, or memory. Open in one engine at a time."""

    def open(self, name: str) -> Store:
        """The store of a database, created on first use. Raises E6002 while it is open."""
        ...

    def databases(self) -> list[str]:
        """Names of the existing databases, "default" first."""
        ...

    def close(self) -> None:
        """Close every open store and release the lock."""
        ...

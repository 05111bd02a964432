"""The storage seam: what the engine asks of a store, and the records that cross it.

A store keeps one database (= tenant): its definitions, its elements as they are now, and the append-only journal of
how they came to be so. It is dumb on purpose: values are already encoded, order and identity are already decided.

    engine ── Batch ──▶ Store.append        one durable transaction: elements + journal + meta
    engine ◀─ Loaded ── Store.load          at open
    anyone ◀─ JournalRow ── Store.read      ranges of the journal, by offset

The usual mistake: acknowledging after `append` was *called*. A batch is durable when `append` has *returned*.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
"""`fsync`: acknowledged means on the disk. `relaxed`: the last moments before a power cut may be lost, never torn."""

RESERVED_PREFIX = "store."
"""Meta keys that begin so are the store's own (epoch, boot, tick …); a batch may not set them."""


class ElementRecord(NamedTuple):
    """A node or an edge as it is stored. A tuple, not a dataclass: a million of them are read at open."""

    id: str
    type: str
    attributes: bytes
    """A JSON object in UTF-8: timestamps as text, durations in ms."""
    targets: tuple[str, ...] | None = None
    """The ids an edge joins, in order; None for a node."""


class JournalRow(NamedTuple):
    """One change in the journal. A tuple in column order, so that rows reach the database without a copy."""

    tick: int
    transaction: str
    collection: str
    key: str
    before: bytes | None
    """JSON image before the change; None for a creation. Images hold `_targets` for edges."""
    after: bytes | None
    time_ms: int
    cause: str | None = None
    source: str = "graph"
    partition: int = 0
    seq: int = 0
    """Per (source, partition), increasing. The graph's own seq is its tick."""
    event_id: str | None = None
    """UNIQUE per source when given: a repeated append of it is ignored (external sources)."""
    offset: int = 0
    """Given by the store when it appends (ignored there), increasing, never reused; may skip numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one flush makes durable: the net effect of one or many commits, in tick order."""

    sequence: int = 0
    """The highest tick in the batch; never below the store's. 0: the batch has none (external sources)."""
    puts: Sequence[ElementRecord] = ()
    """New and changed elements. New edges in the order of their creation: an edge after the edges that it joins."""
    deletes: Sequence[str] = ()
    """Ids; an id is never in both."""
    journal: Sequence[JournalRow] = ()
    definitions: Sequence[str] = ()
    """Ontology texts to append to those stored."""
    meta: Sequence[tuple[str, str]] = ()
    """Small named facts to set (key, value); an empty value forgets the key. No key begins with RESERVED_PREFIX."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreInfo:
    """What a store knows when it is opened."""

    epoch: int
    """Names this log: the moment of its creation in ms, so that a log made anew is never taken for the lost one."""
    boot_count: int
    """Counts the openings, durably: the part of every new id that makes it unique across restarts."""
    sequence: int
    definitions: tuple[str, ...]
    meta: dict[str, str] = field(default_factory=dict)


class Store(Protocol):
    """One database's home. Every method may raise StoreError; none leaves a half-written batch.

    Any thread may call any method; `read` and `elements` do not wait for an `append` that is under way.
    """

    def open_for_writing(self) -> StoreInfo:
        """Read the facts; counts one opening durably. Called once, before anything else.

        From then on `append` refuses (E6002) when somebody else has opened the database since: a writer that lost
        its lock without noticing can do no harm.
        """
        ...

    def info(self) -> StoreInfo:
        """The facts without counting an opening: for a reload after a failed flush, when nothing can be written."""
        ...

    def elements(self) -> Iterator[ElementRecord]:
        """Every element, nodes before the edges that join them (edges may join edges: those come later still)."""
        ...

    def append(self, batch: Batch) -> int:
        """Make the batch durable in one transaction and return the journal's last offset. All or nothing."""
        ...

    def read(self, after: int, limit: int) -> Sequence[JournalRow]:
        """Journal rows with offset > `after`, in order, at most `limit`. E6006 when `after` was trimmed away."""
        ...

    def last_offset(self) -> int: ...

    def trim(self, before_time_ms: int) -> int:
        """Forget the journal up to the first row that is not older; returns the first offset kept (or the next one).

        Only a prefix goes: an old row behind a young one stays, so that the journal never has a hole.
        """
        ...

    def put_meta(self, items: Iterable[tuple[str, str]]) -> None: ...

    def close(self) -> None: ...


class StoreCatalog(Protocol):
    """Where databases live: a data directory, a PostgreSQL database, or memory. Held by one engine at a time."""

    def open(self, name: str) -> Store:
        """The store of a database, created on first use. E6002 while it is open already."""
        ...

    def databases(self) -> list[str]:
        """The names of the databases that exist, "default" first."""
        ...

    def close(self) -> None:
        """Close every store still open and let the next engine in."""
        ...

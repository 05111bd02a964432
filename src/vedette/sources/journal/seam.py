"""The journal between sources and the pipeline: its seam.

One reader per source appends; whoever likes reads ranges of integer offsets. One append is one transaction that holds
the changes, the reader's resume token, the numbers of the partitions and the last image of every key, so after a crash
they agree: what was appended is never asked for again, and what was not is.

    reader ── events + token ──▶ append      repeats dropped by (source, event id), seq and before-images given once
    pipeline ◀── ChangeRow ──── read         offset ranges; a range read twice is equal
    gateway ◀── Snapshot ────── snapshot     a page of last images and the offset it is true for

The usual mistake: telling the source "received" before `append` has returned.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol

from vedette.clock import Clock
from vedette.sources.records import (
    AppendResult,
    ChangeRow,
    Partition,
    PartitionBacklog,
    PartitionState,
    QuarantinedChange,
    SnapshotPage,
    Source,
    SourceEvent,
)

__all__ = ["JOURNAL_FILE", "CollectionJournal", "open_journal"]

JOURNAL_FILE = "collections.db"


class CollectionJournal(Protocol):
    """Changes of external collections. Any process may open it; methods may raise StoreError."""

    @property
    def address(self) -> str:
        """What `open_journal` takes to open the same journal elsewhere, as on a Spark executor."""
        ...

    # --- sources

    def add_source(self, source: Source) -> None:
        """E6101 when the name is taken by another."""
        ...

    def remove_source(self, name: str) -> None:
        """Its changes, images and token go with it. E6103 when there is none."""
        ...

    def set_paused(self, name: str, paused: bool) -> None: ...

    def sources(self) -> list[Source]: ...

    def source(self, name: str) -> Source:
        """E6103 when there is none."""
        ...

    # --- readers

    def append(self, source: str, events: Sequence[SourceEvent], token: str | None) -> AppendResult:
        """Make the events and the token durable together. A token of None leaves the one that is there."""
        ...

    def resume_token(self, source: str) -> str | None:
        """Where the reader of a source goes on; None before its first append."""
        ...

    def image_keys(self, source: str, collection: str) -> set[str]:
        """The keys of a collection as the journal knows it; a scan compares them with what is there."""
        ...

    def images(self, source: str, collection: str, keys: Collection[str]) -> dict[str, bytes]: ...

    def delete_images(self, source: str) -> None:
        """Nothing that is known of its documents is true any more, and nobody will look."""
        ...

    def quarantine(self, item: QuarantinedChange) -> None: ...

    def quarantined(self, source: str, limit: int = 100) -> list[QuarantinedChange]:
        """The youngest first."""
        ...

    def quarantined_total(self) -> int:
        """How many were quarantined so far, by readers and by the pipeline; those that were trimmed count, too."""
        ...

    def set_state(
        self, source: str, state: PartitionState, reason: str = "", *, new_epoch: bool = False
    ) -> None:
        """Set the state of all partitions of a source. `new_epoch`: nothing joins what was before with what comes."""
        ...

    def start_new_epoch(self, partition: int) -> None:
        """Begin a new epoch of one partition: something of it was told to nobody, so its followers begin anew."""
        ...

    # --- readers of the journal

    def partitions(self, source: str | None = None) -> list[Partition]: ...

    def read(
        self, after: int, upto: int, *, share: tuple[int, int] = (0, 1), limit: int | None = None
    ) -> Sequence[ChangeRow]:
        """Changes with after < offset ≤ upto, in order. `share` (i, n): only partitions whose id is i modulo n.

        E6006 when a part of the range was trimmed away.
        """
        ...

    def end_within_limits(self, after: int, max_rows: int, max_bytes: int) -> int:
        """The greatest offset such that the range after `after` stays within both; at least one change, if any."""
        ...

    def last_offset(self) -> int: ...

    def backlog(self, offset: int) -> dict[int, PartitionBacklog]:
        """What is past an offset, of each partition that has something among the oldest 100,000."""
        ...

    def wait_for_append(self, after: int, seconds: float) -> int:
        """The last offset, as soon as it is past `after`, or when the time is over."""
        ...

    def snapshot(
        self, tenant: str, collection: str, *, after_key: str | None = None, limit: int = 1000
    ) -> SnapshotPage:
        """A page of last images by key, and the offset at which it is true."""
        ...

    def collections(self, tenant: str) -> list[str]: ...

    def trim(self, before_ms: int) -> int:
        """Forget changes appended before that moment, a prefix only; returns the first offset that is kept.

        Of the quarantine the youngest stay, whenever they came.
        """
        ...

    def close(self) -> None: ...


def open_journal(address: str | Path, clock: Clock | None = None) -> CollectionJournal:
    """The journal at a PostgreSQL URL, in a file, or `collections.db` in a data directory."""
    text = str(address)
    if text.startswith(("postgresql://", "postgres://")):
        from vedette.sources.journal.postgres_journal import PostgresJournal

        return PostgresJournal(text, clock=clock)
    from vedette.sources.journal.sqlite_journal import SqliteJournal

    path = Path(text)
    return SqliteJournal(path / JOURNAL_FILE if path.is_dir() else path, clock=clock)

"""The journal between sources and the pipeline: its interface.

One reader per source appends; any process reads ranges of integer offsets. One append is one transaction with the
changes, the reader's resume token, the sequence numbers of the partitions and the last image of every key, so they
agree after a crash: a change is either appended or read again from the source.

    reader ── events + token ──▶ append      duplicates dropped by (source, event id); seq and before-images assigned
    pipeline ◀── ChangeRow ──── read         offset ranges; reading a range twice gives equal rows
    gateway ◀── SnapshotPage ── snapshot     a page of last images and the offset at which it is valid

The usual mistake: acknowledging changes to the source before `append` has returned.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol

from vedette.clock import Clock
from vedette.errors import SourceError, StoreError
from vedette.sources.journal.tables import JOURNAL_SCHEMA
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
from vedette.storage.sql_database import open_database

__all__ = ["JOURNAL_FILE", "CollectionJournal", "name_taken", "open_journal", "trimmed", "unknown_source"]

JOURNAL_FILE = "collections.db"


class CollectionJournal(Protocol):
    """Changes of external collections. Any process may open it; methods may raise StoreError."""

    @property
    def address(self) -> str:
        """The address with which `open_journal` opens the same journal elsewhere, for example on a Spark executor."""
        ...

    # --- sources

    def add_source(self, source: Source) -> None:
        """Raises E6101 if another source has the name."""
        ...

    def remove_source(self, name: str) -> None:
        """Delete the source with its changes, images and token. Raises E6103 if it does not exist."""
        ...

    def set_paused(self, name: str, paused: bool) -> None: ...

    def sources(self) -> list[Source]: ...

    def source(self, name: str) -> Source:
        """Raises E6103 if it does not exist."""
        ...

    # --- readers

    def append(self, source: str, events: Sequence[SourceEvent], token: str | None) -> AppendResult:
        """Store the events and the token in one transaction. A token of None keeps the stored one."""
        ...

    def resume_token(self, source: str) -> str | None:
        """Position from which the reader of a source continues; None before its first append."""
        ...

    def image_keys(self, source: str, collection: str) -> set[str]:
        """The keys of a collection that the journal knows; a scan compares them with the source."""
        ...

    def images(self, source: str, collection: str, keys: Collection[str]) -> dict[str, bytes]: ...

    def delete_images(self, source: str) -> None:
        """Delete the last images of a source whose state is unknown and that will not be scanned."""
        ...

    def quarantine(self, item: QuarantinedChange) -> None: ...

    def quarantined(self, source: str, limit: int = 100) -> list[QuarantinedChange]:
        """Newest first."""
        ...

    def quarantined_total(self) -> int:
        """Total number of quarantined changes, by readers and by the pipeline, including trimmed ones."""
        ...

    def set_state(
        self, source: str, state: PartitionState, reason: str = "", *, new_epoch: bool = False
    ) -> None:
        """Set the state of all partitions of a source. With `new_epoch`, earlier and later changes are not
        contiguous."""
        ...

    def start_new_epoch(self, partition: int) -> None:
        """Start a new epoch of one partition because changes were lost; its subscribers must resync."""
        ...

    # --- readers of the journal

    def partitions(self, source: str | None = None) -> list[Partition]: ...

    def read(
        self, after: int, upto: int, *, share: tuple[int, int] = (0, 1), limit: int | None = None
    ) -> Sequence[ChangeRow]:
        """Changes with after < offset ≤ upto, in order. `share` (i, n) selects partitions whose id is i modulo n.

        Raises E6006 if a part of the range was trimmed.
        """
        ...

    def end_within_limits(self, after: int, max_rows: int, max_bytes: int) -> int:
        """The largest end offset for which the range after `after` stays within both limits; at least one change, if
        any."""
        ...

    def last_offset(self) -> int: ...

    def backlog(self, offset: int) -> dict[int, PartitionBacklog]:
        """Per partition, the changes after an offset, counted among the oldest 100,000."""
        ...

    def wait_for_append(self, after: int, seconds: float) -> int:
        """Return the last offset as soon as it is greater than `after`, or at the timeout."""
        ...

    def snapshot(
        self, tenant: str, collection: str, *, after_key: str | None = None, limit: int = 1000
    ) -> SnapshotPage:
        """A page of last images by key, and the offset at which it is valid."""
        ...

    def collections(self, tenant: str) -> list[str]: ...

    def trim(self, before_ms: int) -> int:
        """Delete a prefix of changes appended before that time. Returns the first offset that is kept.

        The newest quarantined changes are kept regardless of their age.
        """
        ...

    def close(self) -> None: ...


def open_journal(address: str | Path, clock: Clock | None = None) -> CollectionJournal:
    """Open the journal at a PostgreSQL URL, in a file, or as `collections.db` in a data directory."""
    from vedette.sources.journal.sql_journal import SqlJournal

    if not str(address).startswith(("postgresql://", "postgres://")) and Path(address).is_dir():
        address = Path(address) / JOURNAL_FILE
    return SqlJournal(open_database(address, JOURNAL_SCHEMA), clock=clock)


def name_taken(name: str) -> SourceError:
    text = f"a source '{name}' exists already: choose another name, or remove it first"
    return SourceError("E6101", text, fields={"source": name})


def unknown_source(name: str) -> SourceError:
    text = f"there is no source '{name}': `vedette source list` shows all sources"
    return SourceError("E6103", text, fields={"source": name})


def trimmed(place: str, after: int, first: int) -> StoreError:
    text = (
        f"{place} no longer has the changes after offset {after}; its first offset is {first}: "
        "take a snapshot and continue from there, or keep the journal longer (journal_retention_seconds)"
    )
    return StoreError("E6006", text, fields={"place": place, "after": after, "first": first})

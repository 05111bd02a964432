"""A store in memory: the twin of the durable stores, for tests and for `:memory:` databases.

It is stricter than they are: a batch that violates the seam's contract raises ValueError.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from threading import Lock

from vedette.clock import Clock, SystemClock
from vedette.errors import StoreError
from vedette.storage.meta import (
    BOOT_KEY,
    FIRST_OFFSET_KEY,
    SEQUENCE_KEY,
    initial_meta,
    journal_trimmed,
    parse_info,
    sequence_went_back,
    validate_batch,
    writer_fenced,
)
from vedette.storage.names import listing_order, validate_name
from vedette.storage.seam import Batch, ElementRecord, JournalRow, StoreInfo

__all__ = ["MemoryCatalog", "MemoryStore"]


@dataclass(slots=True)
class _PersistedState:
    """The contents of the "disk"; outlives the stores opened on it."""

    meta: dict[str, str]
    definitions: list[str] = field(default_factory=list)
    elements: dict[str, ElementRecord] = field(default_factory=dict)
    journal: list[JournalRow] = field(default_factory=list)
    events: set[tuple[str, str]] = field(default_factory=set)
    last_offset: int = 0


class MemoryStore:
    """One database in memory. `append` copies references only: records are immutable."""

    def __init__(self, name: str = "default", *, clock: Clock | None = None) -> None:
        self.place = f"the database {name!r} in memory"
        self._contents = _PersistedState(meta=initial_meta(clock or SystemClock()))
        self._lock = Lock()
        self._boot: int | None = None
        self._closed = False

    def reopen(self) -> MemoryStore:
        """Open another store on the same contents, as after a restart of the process."""
        twin = object.__new__(MemoryStore)
        twin.place, twin._contents, twin._lock = self.place, self._contents, self._lock
        twin._boot, twin._closed = None, False
        return twin

    @property
    def closed(self) -> bool:
        return self._closed

    def open_for_writing(self) -> StoreInfo:
        with self._lock:
            self._check_open()
            self._boot = int(self._contents.meta[BOOT_KEY]) + 1
            self._contents.meta[BOOT_KEY] = str(self._boot)
        return self.info()

    def info(self) -> StoreInfo:
        with self._lock:
            self._check_open()
            return parse_info(self._contents.meta, self._contents.definitions, self.place)

    def elements(self) -> Iterator[ElementRecord]:
        with self._lock:
            self._check_open()
            records = list(self._contents.elements.values())
        yield from (record for record in records if record.targets is None)
        yield from (record for record in records if record.targets is not None)

    def append(self, batch: Batch) -> int:
        with self._lock:
            self._check_open()
            contents = self._contents
            validate_batch(
                batch, [id for id, record in contents.elements.items() if record.targets is not None]
            )
            self._check_writer(batch.sequence)
            if batch.sequence:
                contents.meta[SEQUENCE_KEY] = str(batch.sequence)
            for id in batch.deletes:
                contents.elements.pop(id, None)
            contents.elements.update((record.id, record) for record in batch.puts)
            contents.definitions.extend(batch.definitions)
            for key, value in batch.meta:
                contents.meta[key] = value
                if not value:
                    del contents.meta[key]
            for row in batch.journal:
                self._append_row(row)
            return contents.last_offset

    def read(self, after: int, limit: int) -> Sequence[JournalRow]:
        with self._lock:
            self._check_open()
            first = int(self._contents.meta[FIRST_OFFSET_KEY])
            if after + 1 < first:
                raise journal_trimmed(self.place, after, first)
            return [row for row in self._contents.journal if row.offset > after][:limit]

    def last_offset(self) -> int:
        with self._lock:
            self._check_open()
            return self._contents.last_offset

    def trim(self, before_time_ms: int) -> int:
        with self._lock:
            self._check_open()
            contents = self._contents
            old = list(takewhile(lambda row: row.time_ms < before_time_ms, contents.journal))
            if old:
                del contents.journal[: len(old)]
                contents.events.difference_update((row.source, row.event_id) for row in old if row.event_id)
                contents.meta[FIRST_OFFSET_KEY] = str(old[-1].offset + 1)
            return contents.journal[0].offset if contents.journal else contents.last_offset + 1

    def close(self) -> None:
        self._closed = True

    def _append_row(self, row: JournalRow) -> None:
        contents = self._contents
        if row.event_id is not None:
            if (row.source, row.event_id) in contents.events:
                return
            contents.events.add((row.source, row.event_id))
        contents.last_offset += 1
        contents.journal.append(row._replace(offset=contents.last_offset))

    def _check_writer(self, tick: int) -> None:
        meta = self._contents.meta
        if self._boot is not None and int(meta[BOOT_KEY]) != self._boot:
            raise writer_fenced(self.place, self._boot, int(meta[BOOT_KEY]))
        if tick and tick < int(meta[SEQUENCE_KEY]):
            raise sequence_went_back(self.place, tick, int(meta[SEQUENCE_KEY]))

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("E6005", f"{self.place} is closed: open it again", fields={"place": self.place})


class MemoryCatalog:
    """Databases that end with the catalog."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._stores: dict[str, MemoryStore] = {}

    def open(self, name: str) -> MemoryStore:
        validate_name(name)
        last = self._stores.get(name)
        if last is not None and not last.closed:
            raise StoreError("E6002", f"{last.place} is open already", fields={"place": last.place})
        store = last.reopen() if last is not None else MemoryStore(name, clock=self._clock)
        self._stores[name] = store
        return store

    def databases(self) -> list[str]:
        return sorted(self._stores, key=listing_order)

    def close(self) -> None:
        for store in self._stores.values():
            store.close()

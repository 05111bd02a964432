"""A queue: all elements that match one consume statement of one group."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from vedette.queue.entry import LazyMatches, QueuedMatch, QueueEntry
from vedette.queue.group import Consumer, ConsumerGroup
from vedette.queue.line import KeyedLine, SortedLine

__all__ = ["MatchQueue"]

_COMPACT_AFTER_REMOVALS = 64
"""Number of removed entries that triggers a compaction."""
_COMPACT_CHUNK, _MAX_COMPACT_CHUNKS = 128, 8
"""Entries examined per compaction chunk; chunks per compaction when more than half of the list is removed entries."""


class MatchQueue:
    """All elements that match one statement, and the line of those that are deliverable."""

    __slots__ = (
        "_arriving",
        "_entries",
        "_gone",
        "_held_for_tick",
        "_line",
        "_present",
        "_read",
        "_written",
        "consumers",
        "excluded_identities",
        "feed",
        "group",
        "is_serialized",
        "lazy_matches",
    )

    def __init__(self, group: ConsumerGroup, *, serialized: bool, feed: Any) -> None:
        self.group = group
        self.feed = feed
        """The internal watch that matches for all consumers of the queue."""
        self.is_serialized = serialized
        self.lazy_matches: LazyMatches | None = None
        """Set if rows are computed on delivery; otherwise each entry stores its matches."""
        self.consumers: list[Consumer] = []
        self._entries: list[QueueEntry | None] = []
        """All entries in arrival order. Removed entries stay until they are compacted in chunks (`_compact`)."""
        self._written = self._read = 0
        """`_entries[_written:_read]` is empty."""
        self._present = self._gone = 0
        """Number of current entries, and of entries removed since the last compaction."""
        self.excluded_identities: set[Any] | None = None
        """With `initial: none`: identities of the matches that existed before, which are not queued."""
        self._line: SortedLine | KeyedLine = KeyedLine(group.is_key_blocked) if serialized else SortedLine()
        self._arriving: deque[tuple[int, QueueEntry]] = deque()
        """Entries that wait for a durable commit, with its sequence, in order."""
        self._held_for_tick: dict[QueueEntry, None] | None = None
        """With `deliver_on: tick`: entries that are new since the last tick."""
        group.queues.append(self)

    def __len__(self) -> int:
        """The number of deliverable entries."""
        return len(self._line)

    def hold_for_ticks(self) -> None:
        """With `deliver_on: tick`: hold new entries until the tick ends."""
        self._held_for_tick = {}

    def add(self, entry: QueueEntry) -> None:
        """Queue a new or changed entry, after the tick if the queue holds entries for ticks."""
        if self._held_for_tick is not None:
            self._held_for_tick[entry] = None
        else:
            self.enqueue(entry)

    def enqueue(self, entry: QueueEntry) -> None:
        """Queue the entry for delivery once its commit is durable.

        A requeued entry does not wait for another tick.
        """
        if not self._held_for_tick or entry not in self._held_for_tick:
            self._arriving.append((entry.sequence, entry))

    def end_tick(self) -> None:
        if self._held_for_tick:
            self._arriving.extend((entry.sequence, entry) for entry in self._held_for_tick)
            self._held_for_tick = {}

    @property
    def not_durable_count(self) -> int:
        """The number of entries that wait to be admitted to the line."""
        return len(self._arriving)

    def has_durable_arrivals(self, durable: int) -> bool:
        """True if some waiting entry can be admitted to the line."""
        return bool(self._arriving) and self._arriving[0][0] <= durable

    def admit_durable(self, durable: int, limit: int | None = None) -> None:
        """Move entries whose commit is durable to the line, at most `limit` of them."""
        arriving = self._arriving
        left = len(arriving) if limit is None else min(limit, len(arriving))
        while left and arriving[0][0] <= durable:
            left -= 1
            sequence, entry = arriving.popleft()
            stale = entry.sequence != sequence or entry.is_in_line
            if not stale and entry.has_match and entry.is_available:
                self._line.add(entry)

    def remove(self, entry: QueueEntry) -> None:
        self._line.remove(entry)

    def pop(self, limit: int) -> list[QueueEntry]:
        """Remove and return the first entries. May return fewer than requested although more are left."""
        entries: list[Any] = self._line.pop(limit)
        return entries

    def rows(self, entries: Sequence[QueueEntry]) -> list[Mapping[str, Any]]:
        """The rows to deliver."""
        if self.lazy_matches is not None:
            return self.lazy_matches.rows([entry.element for entry in entries])
        return [entry.row for entry in entries]

    def unblock_key(self, key: Hashable) -> None:
        """Make the next entry of the key deliverable."""
        if isinstance(self._line, KeyedLine):
            self._line.expose_head(key)

    @property
    def entries(self) -> list[QueueEntry]:
        """All entries that match."""
        held = self._entries[: self._written] + self._entries[self._read :]
        return [entry for entry in held if entry is not None and entry.has_match]

    def add_entry(self, element: str, arrival: int) -> QueueEntry:
        entry = QueueEntry(element, self, arrival)
        self._entries.append(entry)
        self._present += 1
        return entry

    def drop_entry(self, entry: QueueEntry) -> None:
        """Remove an entry that no longer matches."""
        entry.clear()
        self._present -= 1
        self._gone += 1
        if self._gone >= _COMPACT_AFTER_REMOVALS or not self._present:
            self._compact()

    def _compact(self) -> None:
        """Continue along the list and move remaining entries over removed ones.

        The list is at most about twice as long as the number of entries, and no single call pays for a full
        compaction.
        """
        self._gone = 0
        if not self._present:
            self._clear_entries()
        entries = self._entries
        for _ in range(_MAX_COMPACT_CHUNKS):
            step = entries[self._read : self._read + _COMPACT_CHUNK]
            kept = [entry for entry in step if entry is not None and entry.has_match]
            entries[self._read : self._read + _COMPACT_CHUNK] = [None] * len(step)
            entries[self._written : self._written + len(kept)] = kept
            self._written += len(kept)
            self._read += _COMPACT_CHUNK
            if self._read >= len(entries):
                del entries[self._written :]
                self._written = self._read = 0
            if len(entries) - (self._read - self._written) <= 2 * self._present + _COMPACT_CHUNK:
                return

    def _clear_entries(self) -> None:
        self._entries = []
        self._written = self._read = self._present = self._gone = 0

    def set_match(self, entry: QueueEntry, match: QueuedMatch | None) -> None:
        """Add or replace a match. The entry leaves the line until its commit is durable."""
        self._line.remove(entry)
        entry.set_match(match)

    def store_matches(self) -> None:
        """Store the matches of all entries, because they can no longer be computed lazily."""
        for entry in self.entries if self.lazy_matches is not None else ():
            entry.set_match(entry.best_match)
        self.lazy_matches = None

    def clear(self) -> None:
        """Release all entries when the last consumer is gone."""
        self._clear_entries()
        self._arriving.clear()
        self._line = SortedLine()
        self._held_for_tick = None

    def validate(self) -> None:
        """Raise AssertionError unless only available entries are in the line. For tests."""
        self._line.validate()
        for entry in self.entries:
            assert entry.has_match
            assert entry.queued_element is None or entry in entry.queued_element.entries
            assert not entry.is_in_line or entry.is_available

"""Past commits: recent ones from memory, older ones from the log; and the graph states between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import groupby

from vedette.element import Element
from vedette.engine.state.graph_state import Commit, GraphState
from vedette.errors import StoreError
from vedette.graph.overlay import Overlay
from vedette.language.compile.union_view import ElementChange
from vedette.storage.element_codec import ElementCodec
from vedette.storage.seam import JournalRow, Store
from vedette.values import approximate_bytes, timestamp_from_ms

__all__ = ["CommitHistory", "LogTrimmed", "replay"]

_ROWS_PER_READ = 1000
_OVERHEAD = 200
"""Approximate bytes of a change, without its values."""


class LogTrimmed(Exception):
    """The requested commits have been trimmed from the log."""


class CommitHistory:
    """Reads commits by sequence.

    `keep` and `keep_bytes` limit what is in memory; `:memory:` databases have no more.
    """

    def __init__(
        self, store: Store, codec: Callable[[], ElementCodec], *, keeps: bool, keep: int, keep_bytes: int
    ) -> None:
        self._store = store if keeps else None
        self._codec = codec
        self._keep, self._keep_bytes = keep, keep_bytes
        self._recent: deque[Commit] = deque()
        self._weights: deque[int] = deque()
        """Approximate bytes of each commit."""
        self._weight = 0
        self._in_memory_after = 0
        """Every commit with a higher sequence is in memory."""

    def reset(self, sequence: int) -> None:
        """Start with an empty memory: commits up to this sequence are only in the log."""
        self._recent.clear()
        self._weights.clear()
        self._weight = 0
        self._in_memory_after = sequence

    def add(self, commit: Commit) -> None:
        """Add a commit. The latest is kept regardless of its size, because the graph holds its elements anyway."""
        weight = _weight_of(commit.changes)
        recent = self._recent
        recent.append(commit)
        self._weights.append(weight)
        self._weight += weight
        while len(recent) > self._keep or (self._weight > self._keep_bytes and len(recent) > 1):
            self._in_memory_after = recent.popleft().sequence
            self._weight -= self._weights.popleft()

    def pad_elements(self, width: Callable[[str], int]) -> None:
        """After a schema change: extend older versions by the new attributes, like the elements of the graph."""
        self._recent = deque(
            [commit._replace(changes=_widened(commit.changes, width)) for commit in self._recent]
        )

    def commits_after(self, sequence: int) -> list[Commit]:
        """Commits with a higher sequence that changed elements, in order. Raises LogTrimmed if some are gone."""
        if sequence >= self._in_memory_after:
            return [commit for commit in self._recent if commit.sequence > sequence and commit.changes]
        older = self._from_journal(sequence)
        return older + [commit for commit in self._recent if commit.changes]

    def last_time(self) -> datetime | None:
        """The time of the last change; None if unknown."""
        if self._recent or self._store is None:
            return self._recent[-1].time if self._recent else None
        last = self._store.last_offset()
        rows = self._store.read(last - 1, 1) if last >= self._first_offset() else ()
        return timestamp_from_ms(rows[0].time_ms) if rows else None

    def time_of(self, sequence: int) -> datetime | None:
        """The time of the last commit up to this sequence; None if unknown."""
        made = [commit.time for commit in self._recent if commit.sequence <= sequence]
        if made or self._store is None:
            return made[-1] if made else None
        times = [row.time_ms for row in self._rows() if row.seq <= sequence]
        return timestamp_from_ms(times[-1]) if times else None

    def sequence_of_tick(self, tick: int) -> int:
        """The last sequence committed in this tick or before."""
        found = [commit.sequence for commit in self._recent if commit.tick <= tick]
        if found:
            return found[-1]
        if self._store is not None:
            return self._bisect(tick)
        if self._in_memory_after and self._recent and self._recent[0].tick > tick + 1:
            raise LogTrimmed
        return self._in_memory_after

    def _bisect(self, tick: int) -> int:
        """Binary search for the last row of the tick: offsets and ticks increase together."""
        assert self._store is not None
        first = self._first_offset()
        low, high = first - 1, self._store.last_offset()
        best = 0
        while low < high:
            middle = (low + high) // 2
            rows = self._store.read(middle, 1)
            if rows and rows[0].tick <= tick:
                best = rows[0].seq
                low = rows[0].offset
            else:
                high = middle
        if best == 0 and first > 1:
            raise LogTrimmed
        return best

    def _from_journal(self, sequence: int) -> list[Commit]:
        if self._store is None:
            raise LogTrimmed
        rows = [row for row in self._rows() if sequence < row.seq <= self._in_memory_after]
        first = self._first_offset()
        if first > 1 and (not rows or rows[0].offset == first) and self._trimmed_after(sequence, first):
            raise LogTrimmed
        return [self._commit(list(group)) for _, group in groupby(rows, key=lambda row: row.seq)]

    def _trimmed_after(self, sequence: int, first: int) -> bool:
        """True if a row with a higher sequence may have been trimmed."""
        assert self._store is not None
        rows = self._store.read(first - 1, 1)
        return bool(rows) and rows[0].seq > sequence + 1

    def _first_offset(self) -> int:
        """The first offset that is still in the log."""
        assert self._store is not None
        try:
            self._store.read(0, 1)
        except StoreError as error:
            if error.code != "E6006":
                raise
            return int(error.fields["first"])
        return 1

    def _rows(self) -> Iterator[JournalRow]:
        assert self._store is not None
        after = self._first_offset() - 1
        while rows := self._store.read(after, _ROWS_PER_READ):
            yield from (row for row in rows if row.source == "graph")
            after = rows[-1].offset

    def _commit(self, rows: Sequence[JournalRow]) -> Commit:
        codec, first = self._codec(), rows[0]
        changes: list[ElementChange] = []
        for row in rows:
            before = codec.from_image(row.collection, row.key, row.before) if row.before is not None else None
            after = codec.from_image(row.collection, row.key, row.after) if row.after is not None else None
            changes.append((before, after))
        moment = timestamp_from_ms(first.time_ms)
        return Commit(first.seq, first.tick, first.tick + 1, moment, changes, first.cause)


def _weight_of(changes: Sequence[ElementChange]) -> int:
    """A replaced version counts towards the commit that replaced it, because the graph no longer needs it."""
    total = 0
    for before, after in changes:
        total += _OVERHEAD
        if before is not None:
            total += approximate_bytes(before.values)
        if after is not None:
            total += approximate_bytes(after.values)
    return total


def _widened(changes: Sequence[ElementChange], width: Callable[[str], int]) -> list[ElementChange]:
    def wide(element: Element | None) -> Element | None:
        missing = width(element.type) - len(element.values) if element is not None else 0
        if element is None or missing <= 0:
            return element
        return Element(element.id, element.type, element.values + (None,) * missing, element.targets)

    return [(wide(before), wide(after)) for before, after in changes]


def replay(
    state: GraphState, commits: Sequence[Commit], visit: Callable[[Commit, Overlay, Overlay], None]
) -> None:
    """Call `visit` for each commit with the views before and after it, from the first to the present."""
    before, after = Overlay(state.graph, state.layout), Overlay(state.graph, state.layout)
    for commit in reversed(commits):
        for old, new in commit.changes:
            for view in (before, after):
                _set_version(view, old, new, earlier=True)
    for commit in commits:
        for old, new in commit.changes:
            _set_version(after, old, new, earlier=False)
        visit(commit, before, after)
        for old, new in commit.changes:
            _set_version(before, old, new, earlier=False)


def _set_version(view: Overlay, old: Element | None, new: Element | None, *, earlier: bool) -> None:
    version, other = (old, new) if earlier else (new, old)
    if version is not None:
        view.put(version)
    elif other is not None:
        view.delete(other.id)

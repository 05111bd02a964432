"""Windows of a WATCH over a collection, by source time. They have the same meaning as windows in the engine.

Changes go in as they arrive, a watermark says that no older change is expected, and the events of ended windows come
out. `vedette.watch.windows` decides when windows end and what they contain, `vedette.watch.aggregates` computes
aggregates. The engine applies both at commits, by its clock; this module applies them by the times of changes.

    time        of a change is the source's, but not before the change before it in its partition (order never changes),
                and not after the time at which the journal appended it (the source's clock may be ahead)
    watermark   ends windows; changes of later windows wait until theirs ends
    late        a change of a window that has ended is counted and belongs to the next window

Snapshots: an aggregating watch starts with the documents of a snapshot. Changes up to the offset of the snapshot are
already in it; they only mark a document as recently changed for a sliding window.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

from vedette.filters.document_filter import DocumentFilter, compile_filter
from vedette.filters.inputs import FilterInput
from vedette.language.syntax.expressions import Call, Expression
from vedette.subscriptions.collection_watch import AggregateColumn, CollectionWatch, field_value
from vedette.subscriptions.windows.hashable_values import from_hashable, merge_sums, milliseconds, to_hashable
from vedette.values import timestamp_from_ms, timestamp_to_ms
from vedette.watch.aggregates import Contribution, Groups
from vedette.watch.delta import ADDED, CHANGED, REMOVED, Delta, values_equal
from vedette.watch.windows import WindowState

__all__ = [
    "AggregateSpec",
    "Document",
    "WindowChange",
    "WindowEvent",
    "WindowedState",
    "WindowedWatch",
    "new_state",
    "window_ends_between",
]

Document = Mapping[str, Any]


class WindowChange(NamedTuple):
    """A change of one document: each image is set if the watch's condition holds, else None."""

    offset: int
    partition: int
    time_ms: int
    appended_ms: int
    collection: str
    key: str
    before: Document | None
    after: Document | None


class WindowEvent(NamedTuple):
    """The event of a window end. `position` counts events per watch, from 1."""

    position: int
    type: str
    start: datetime
    end: datetime
    match: dict[str, Any] | None = None
    prev: dict[str, Any] | None = None
    matches: list[dict[str, Any]] | None = None
    events: list[dict[str, Any]] | None = None
    dropped: int = 0
    """Number of events of the window that were dropped because of its limit."""


MAX_WINDOW_EVENTS = 100_000
"""Maximum events of a window without aggregates, which bounds the memory of the workers."""


@dataclass(slots=True)
class WindowedState:
    """State of one subscription between batches. `state_codec` defines how it is stored."""

    window: WindowState
    aggregates: tuple[AggregateSpec, ...]
    groups: Groups
    snapshot_offsets: dict[str, int] = field(default_factory=dict)
    """Collection to the offset of its snapshot."""
    pending: list[tuple[datetime, int, WindowChange]] = field(default_factory=list)
    """Changes of windows that have not ended, by time and offset."""
    latest: dict[int, datetime] = field(default_factory=dict)
    """Partition to the time of its last change."""
    recently_changed: dict[tuple[str, str], Contribution] = field(default_factory=dict)
    """Sliding aggregates: recently added or changed documents, by collection and key."""
    last_groups: dict[Any, dict[str, Any]] = field(default_factory=dict)
    """The groups of the last window, by identity."""
    position: int = 0
    """Number of events so far."""
    late: int = 0
    """Changes that arrived after their window had ended."""
    carried_events: int = 0
    """Without aggregates: events of the last window that a sliding window may repeat."""
    dropped: int = 0
    """Without aggregates: dropped events since the last window end."""


class AggregateSpec(NamedTuple):
    """Description of one accumulator of a group (`watch.aggregates.AggregateKind`)."""

    name: str
    distinct: bool
    limit: int | None = None


def new_state(watch: CollectionWatch, created: datetime) -> WindowedState:
    """Return the state of a subscription whose windows start at `created`."""
    aggregates = _accumulators(watch.aggregates)
    return WindowedState(WindowState(watch.options.window, created), aggregates, Groups(aggregates))


class WindowedWatch:
    """One windowed subscription. Its `state` is stored between batches; everything else follows from the watch."""

    def __init__(self, watch: CollectionWatch, created: datetime, state: WindowedState | None = None) -> None:
        self._watch = watch
        self._sliding = watch.options.window.kind == "sliding"
        self.state = state or new_state(watch, created)

    @property
    def late(self) -> int:
        return self.state.late

    # --- input

    def load_snapshot(self, collection: str, offset: int, documents: Iterable[tuple[str, Document]]) -> None:
        """Load the matching documents (key, image) of a collection at a journal offset."""
        self.state.snapshot_offsets[collection] = offset
        for key, document in documents:
            self.state.groups.change(self._contribution(collection, key, document), 1)

    def apply(self, change: WindowChange) -> None:
        state, window = self.state, self.state.window
        moment = timestamp_from_ms(min(change.time_ms, change.appended_ms))
        moment = max(moment, state.latest.get(change.partition, moment))
        state.latest[change.partition] = moment
        opened = window.end - window.window.interval
        if moment < opened:
            state.late += 1
            moment = opened
        if self._watch.aggregates and not self._sliding and moment < window.end:
            self._aggregate(change, moment)  # reads only the documents at the end
        elif not self._watch.aggregates and len(state.pending) + state.carried_events >= MAX_WINDOW_EVENTS:
            state.dropped += 1
        else:
            insort(state.pending, (moment, change.offset, change), key=lambda each: each[:2])

    # --- output

    def advance(self, watermark: datetime) -> list[WindowEvent]:
        """Return the events of the windows that end up to the watermark."""
        found: list[WindowEvent] = []
        while self.state.window.end <= watermark:
            self._apply(self.state.window.end)
            found += self._grouped() if self._watch.aggregates else self._collected()
        return found

    def _apply(self, end: datetime) -> None:
        """Yield the changes before the end of the window, in order."""
        state = self.state
        count = 0
        for moment, _, change in state.pending:
            if moment >= end:
                break
            count += 1
            if self._watch.aggregates:
                self._aggregate(change, moment)
            else:
                self._collect(change, moment)
        del state.pending[:count]

    def _collect(self, change: WindowChange, moment: datetime) -> None:
        before, after = (
            self._watch.row(change.key, image, change.collection) if image is not None else None
            for image in (change.before, change.after)
        )
        if before is None and after is not None:
            delta = Delta(ADDED, after, None, (change.collection, change.key))
        elif after is None:
            delta = Delta(REMOVED, before, None, (change.collection, change.key))
        elif values_equal(before, after):
            return
        else:
            delta = Delta(CHANGED, after, before, (change.collection, change.key))
        self.state.window.collect(delta, change.offset, moment)

    def _aggregate(self, change: WindowChange, moment: datetime) -> None:
        state = self.state
        for image, times in ((change.before, -1), (change.after, 1)):
            if image is not None and change.offset > state.snapshot_offsets.get(change.collection, -1):
                state.groups.change(self._contribution(change.collection, change.key, image), times)
        if not self._sliding:
            return
        name = change.collection, change.key
        if change.after is None:
            state.recently_changed.pop(name, None)
        elif change.before is None or self._taken(*name, change.before) != self._taken(*name, change.after):
            state.recently_changed[name] = self._contribution(*name, change.after)
            state.window.touch(name, moment)

    def _collected(self) -> list[WindowEvent]:
        state = self.state
        start, end, entries = state.window.close()
        state.carried_events = len(entries) if self._sliding else 0
        if not entries:
            return []
        events = [
            {
                "type": delta.type,
                "match": delta.match,
                **({"prev": delta.prev} if delta.prev is not None else {}),
            }
            for _, delta in entries
        ]
        dropped, state.dropped = state.dropped, 0
        return [WindowEvent(self._next(), "window", start, end, events=events, dropped=dropped)]

    def _grouped(self) -> list[WindowEvent]:
        """Return one event per group. The first window end reports all groups as `initial`."""
        state, window = self.state, self.state.window
        groups = state.groups
        if self._sliding:
            recent = window.recent()
            state.recently_changed = {
                key: part for key, part in state.recently_changed.items() if key in recent
            }
            groups = Groups(state.aggregates)
            for part in state.recently_changed.values():
                groups.change(part, 1)
        start, end, _ = window.close()
        new, old = self._rows(groups), state.last_groups
        state.last_groups = new
        if window.first:
            window.first = False
            return [WindowEvent(self._next(), "initial", start, end, matches=list(new.values()))]
        found = [
            WindowEvent(self._next(), CHANGED, start, end, match=row, prev=old[identity])
            if identity in old
            else WindowEvent(self._next(), ADDED, start, end, match=row)
            for identity, row in new.items()
        ]
        gone = [row for identity, row in old.items() if identity not in new]
        return found + [WindowEvent(self._next(), REMOVED, start, end, match=row) for row in gone]

    def _rows(self, groups: Groups) -> dict[Any, dict[str, Any]]:
        identities = groups.identities() or ([()] if not self._watch.columns else [])
        rows = {}
        for identity in identities:
            found = groups.results(identity)
            if found is None:
                continue
            keys = dict(
                zip((name for name, _ in self._watch.columns), map(from_hashable, found[0]), strict=True)
            )
            values = _values(self._watch.aggregates, found[1])
            rows[identity] = {
                name: values[name] if name in values else keys[name] for name in self._watch.column_order
            }
        return rows

    def _next(self) -> int:
        self.state.position += 1
        return self.state.position

    # --- aggregates

    def _taken(self, collection: str, key: str, document: Document) -> tuple[Contribution, list[Document]]:
        """Return the values that groups and aggregates read from a document.

        A document whose values stay equal counts as unchanged.
        """
        parts = self._contribution(collection, key, document)
        whole = [
            document
            for column in self._watch.aggregates
            if column.whole and _part(column, collection, key, document)[0]
        ]
        return parts, whole

    def _contribution(self, collection: str, key: str, document: Document) -> Contribution:
        row = self._watch.row(key, document, collection)
        parts: list[tuple[bool, Any]] = []
        for column in self._watch.aggregates:
            parts += _parts(column, collection, key, document)
        return tuple(map(to_hashable, row.values())), parts


def _accumulators(aggregates: Sequence[AggregateColumn]) -> tuple[AggregateSpec, ...]:
    """Return the accumulators of a group. SUM and AVG have two, one for numbers and one for durations."""
    found: list[AggregateSpec] = []
    for column in aggregates:
        found += [AggregateSpec(column.name, column.distinct, column.limit)] * (
            2 if column.name in _SUMS else 1
        )
    return tuple(found)


def _values(aggregates: Sequence[AggregateColumn], results: Iterable[Any]) -> dict[str, Any]:
    """Return the accumulators of `_accumulators` by column."""
    left = iter(results)
    return {
        column.column: merge_sums(next(left), next(left))
        if column.name in _SUMS
        else from_hashable(next(left))
        for column in aggregates
    }


def _parts(column: AggregateColumn, collection: str, key: str, document: Document) -> list[tuple[bool, Any]]:
    counts, value = _part(column, collection, key, document)
    if column.name not in _SUMS:
        return [(counts, value)]
    duration = milliseconds(value)
    return [(counts and duration is None, value), (counts and duration is not None, duration)]


def _part(column: AggregateColumn, collection: str, key: str, document: Document) -> tuple[bool, Any]:
    """Return whether a document counts for an aggregate, and its value."""
    if column.where is not None:
        environment = FilterInput(doc=document, id=key, collection=collection)
        if not _compiled(column.where).matches(environment):
            return False, None
    if column.operand is None:
        return True, None
    value = field_value(column.operand, key, document, collection)
    if column.name == "COLLECT":  # keeps nulls too
        return True, ((collection, key), to_hashable(value))
    return value is not None and _fits(column.name, value), to_hashable(value)


_SUMS = ("SUM", "AVG")


def _fits(name: str, value: Any) -> bool:
    """Return the value for SUM, AVG, MIN and MAX.

    A value that cannot be combined with the others is skipped, like null.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if name in _SUMS:
        return number or isinstance(value, timedelta)
    return name == "COUNT" or number


@cache
def _compiled(condition: Expression) -> DocumentFilter:
    return compile_filter(Call("holds", (condition,)))


def window_ends_between(watch: CollectionWatch, created: datetime, before_ms: int, now_ms: int) -> bool:
    """True if a window ends between the two watermarks."""
    interval = watch.options.window.interval // timedelta(milliseconds=1) or 1
    begin = timestamp_to_ms(created)
    return (now_ms - begin) // interval > max(
        0, (before_ms - begin) // interval
    ) and now_ms >= begin + interval

"""Streams of filters over a node type. One watch of the type serves all filters with equal rights.

Theory of operation. A `NodeTypeWatch` takes every change of one node type, as one actor sees it. It asks its
`FilterIndex` for the filters that the old or the new image can match, evaluates only these, and appends a delta to the
stream of each filter that the change affects. Engine thread only, except `mark_ready`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vedette.change import Event
from vedette.engine.session.watch_feed import WatchFeed
from vedette.filters.document_filter import DocumentFilter
from vedette.filters.inputs import FilterInput
from vedette.gateway.streams.event_log import EventLog
from vedette.gateway.streams.filter_index import FilterIndex
from vedette.gateway.streams.stream import EncodedEvent, Stream
from vedette.gateway.wire.messages import to_wire
from vedette.gateway.wire.replies import delta_payload
from vedette.transport.sampled_log import LARGE_MATCH_COUNT, SLOW_FILTER_MS, log_sampled
from vedette.values import timestamp_to_ms

__all__ = ["FilterCounters", "FilterStream", "NodeTypeWatch"]


@dataclass(slots=True)
class FilterCounters:
    """Filter evaluations of one database since the server started."""

    candidates: int = 0
    """Evaluations: filters that the index returned."""
    matches: int = 0
    """Evaluations that matched."""


class NodeTypeWatch:
    """The single watch behind all filters over a node type with equal rights."""

    __slots__ = (
        "_is_ready",
        "_on_ready",
        "actor",
        "collection",
        "counters",
        "event_log",
        "feed",
        "index",
        "streams",
    )

    def __init__(
        self,
        event_log: EventLog,
        collection: str,
        actor: str | None,
        feed: WatchFeed,
        counters: FilterCounters,
        *,
        on_ready: Callable[[NodeTypeWatch], None],
    ) -> None:
        """`on_ready` is called when changes may be ready: from any thread, possibly with locks held."""
        self.event_log, self.collection, self.actor, self.feed = event_log, collection, actor, feed
        self.counters, self._on_ready = counters, on_ready
        self.streams: dict[bytes, FilterStream] = {}
        self.index: FilterIndex[FilterStream] = FilterIndex()
        self._is_ready = False

    def mark_ready(self) -> None:
        if not self._is_ready:
            self._is_ready = True
            self._on_ready(self)

    def take_ready(self) -> list[tuple[Stream, EncodedEvent]]:
        self._is_ready = False
        matched: list[tuple[Stream, EncodedEvent]] = []
        for event in self.feed.take():
            matched += self._match_filters(event)
        return matched

    def _match_filters(self, event: Event) -> list[tuple[Stream, EncodedEvent]]:
        """Evaluate one change against the candidate filters and append an event to each stream that it affects."""
        clock, matched, candidates = self.event_log.clock, list[tuple[Stream, EncodedEvent]](), 0
        begun, now_ms = clock.monotonic(), timestamp_to_ms(clock.now())
        images = before, after = _images(event)
        for stream in self.index.candidates(images):
            candidates += 1
            delta = stream.delta_for(before, after, now_ms)
            if delta is not None:
                matched.append((stream, stream.append(b'"delta"', delta, event.tick)))
        self.counters.candidates += candidates
        self.counters.matches += len(matched)
        milliseconds = (clock.monotonic() - begun) * 1000
        subject = f"{self.event_log.tenant}/{self.collection}"
        if milliseconds >= SLOW_FILTER_MS:
            text = f"{candidates} filters over {subject} took {milliseconds:.0f} ms for one change"
            log_sampled("filter.slow", subject, text)
        if len(matched) >= LARGE_MATCH_COUNT:
            log_sampled("change.wide", subject, f"One change of {subject} matched {len(matched)} filters")
        return matched

    def documents(self, event: Event) -> list[dict[str, Any]]:
        """Return the documents of a snapshot event."""
        return [dict(row["d"]) for row in event.matches or ()]


class FilterStream(Stream):
    """The documents of a node type that match a filter, as enter, update, leave and delete deltas."""

    __slots__ = ("_filter", "include_data", "node_type_watch")

    def __init__(
        self,
        node_type_watch: NodeTypeWatch,
        stream_id: int,
        stream_key: bytes,
        condition: DocumentFilter,
        *,
        include_data: bool,
    ) -> None:
        super().__init__(node_type_watch.event_log, stream_id, stream_key, node_type_watch.actor)
        self.node_type_watch = node_type_watch
        self._filter = condition
        self.include_data = include_data
        node_type_watch.streams[stream_key] = self
        node_type_watch.index.add(self, condition.expression)

    def matches(self, document: Mapping[str, Any] | None, op: str, before: Mapping[str, Any] | None) -> bool:
        if document is None:
            return False
        collection = self.node_type_watch.collection
        return self._filter.matches(
            FilterInput(doc=document, id=str(document["id"]), collection=collection, op=op, before=before)
        )

    def delta_for(
        self, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, now_ms: int
    ) -> dict[str, Any] | None:
        """Return the delta of a change for this filter; None if the change does not affect it."""
        op = "create" if before is None else "delete" if after is None else "update"
        was, is_now = self.matches(before, op, None), self.matches(after, op, before)
        if not was and not is_now:
            return None
        document = after if after is not None else before
        assert document is not None
        if was and is_now:
            kind, reason = "update", "update"
        elif is_now:
            kind, reason = "create", "enter"
        else:
            kind, reason = "delete", "delete" if after is None else "leave"
        return delta_payload(
            kind,
            reason,
            id=f"{self.node_type_watch.collection}/{document['id']}",
            timestamp_ms=now_ms,
            document=to_wire(after) if self.include_data and is_now else None,
        )

    def close(self) -> None:
        super().close()
        assert self.stream_key is not None
        self.node_type_watch.streams.pop(self.stream_key, None)
        self.node_type_watch.index.remove(self)


def _images(event: Event) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    match = dict(event.match["d"]) if event.match is not None else None
    if event.type == "added":
        return None, match
    if event.type == "removed":
        return match, None
    return (dict(event.prev["d"]) if event.prev is not None else match), match

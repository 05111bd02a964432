"""The last delivered events of all watches, without their content, for `_WatchEvent`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from vedette.watch.buffer import BufferedEvent
from vedette.watch.watch import Watch

__all__ = ["RecentEvent", "RecentEvents", "event_fields"]


class RecentEvent(NamedTuple):
    """An event without its content, which may be large."""

    watch: Watch
    position: int
    tick: int
    at_ms: int
    type: str
    delivery_id: str | None


_WIDTH = len(RecentEvent._fields)


class RecentEvents:
    """A ring of the last events.

    Stored field by field in one deque. An object per delivered event would be created and garbage-collected for a
    record that is rarely read.
    """

    __slots__ = ("_fields",)

    def __init__(self, limit: int) -> None:
        self._fields: deque[Any] = deque(maxlen=limit * _WIDTH)

    def add(self, watch: Watch, entries: Iterable[BufferedEvent]) -> None:
        fields = self._fields
        for entry in entries:
            fields.extend(event_fields(watch, entry))

    def __iter__(self) -> Iterator[RecentEvent]:
        """Iterate over a copy, so that events may be added meanwhile."""
        fields = list(self._fields)
        return iter([RecentEvent(*fields[at : at + _WIDTH]) for at in range(0, len(fields), _WIDTH)])


def event_fields(watch: Watch, entry: BufferedEvent) -> tuple[Watch, int, int, int, str, str | None]:
    """The fields of a `RecentEvent`."""
    delta = entry.delta
    id = delta.delivery[0] if delta.delivery is not None else None
    return watch, entry.position, entry.tick, entry.detected_at_ms, delta.type, id

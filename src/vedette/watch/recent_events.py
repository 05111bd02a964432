"""What can be asked about events that were handed out: the last ones of all watches, without what they said."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from vedette.watch.buffer import BufferedEvent
from vedette.watch.watch import Watch

__all__ = ["RecentEvent", "RecentEvents", "event_fields"]


class RecentEvent(NamedTuple):
    """Everything about an event but its content, which may be large."""

    watch: Watch
    position: int
    tick: int
    at_ms: int
    type: str
    delivery_id: str | None


_WIDTH = len(RecentEvent._fields)


class RecentEvents:
    """The last events, the oldest out first.

    Field after field in one row: an object for each would be made for every event that is handed out, looked at by the
    garbage collector and let go of long afterwards, and hardly anybody ever asks.
    """

    __slots__ = ("_fields",)

    def __init__(self, most: int) -> None:
        self._fields: deque[Any] = deque(maxlen=most * _WIDTH)

    def add(self, watch: Watch, entries: Iterable[BufferedEvent]) -> None:
        fields = self._fields
        for entry in entries:
            fields.extend(event_fields(watch, entry))

    def __iter__(self) -> Iterator[RecentEvent]:
        """Those that are there now, whoever adds to them meanwhile."""
        fields = list(self._fields)
        return iter([RecentEvent(*fields[at : at + _WIDTH]) for at in range(0, len(fields), _WIDTH)])


def event_fields(watch: Watch, entry: BufferedEvent) -> tuple[Watch, int, int, int, str, str | None]:
    """What is kept of an event: the fields of a PastEvent."""
    delta = entry.delta
    id = delta.delivery[0] if delta.delivery is not None else None
    return watch, entry.position, entry.tick, entry.detected_at_ms, delta.type, id

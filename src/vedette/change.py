"""The records that packages exchange: changes, positions in a change log, and events.

`Change` is the before and after image of one element at a `Position`. Nodes and edges of the graph, documents of a
collection and files of a folder all change this way. `Event` is what one watch reports about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from vedette.values import Value

__all__ = ["Change", "Event", "Image", "Position"]

Image = Mapping[str, Value]
"""An element as data: `id`, `_type`, its attributes by name, and `_targets` for an edge."""


class Position(NamedTuple):
    """A position in a change log. The epoch changes only if the log is lost or restored from a backup."""

    epoch: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One element before and after. `before` is None for a creation, `after` for a deletion."""

    collection: str
    """The element's type, or its collection or folder."""
    key: str
    """The element's id within its collection."""
    before: Image | None
    after: Image | None
    position: Position
    tick: int
    """Logical time of the commit; for other sources the reader's own count."""
    time: datetime
    """When it happened, according to the source."""
    source: str = "graph"
    partition: int = 0
    transaction: str | None = None
    cause: str | None = None
    """What caused this change (a statement, a rule, a trigger, a delivery); passed on to the delivery."""
    event_id: str | None = None
    """The source's own id of this change, for detecting duplicates."""


@dataclass(slots=True, kw_only=True)
class Event:
    """One event of a watch."""

    type: str
    tick: int
    position: int
    """Consecutive per watch, assigned at detection. Numbers are missing only where `dropped` says so."""
    match: Mapping[str, Any] | None = None
    prev: Mapping[str, Any] | None = None
    matches: tuple[Mapping[str, Any], ...] | None = None
    delivery_id: str | None = None
    window_start: datetime | None = None
    window_end: datetime | None = None
    events: tuple[Event, ...] | None = None
    dropped: int = 0
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Additional fields of the host; never part of the payload's fixed fields."""

    def to_dict(self) -> dict[str, Any]:
        """The payload: `type`, `tick`, `position`, then only the fields of this event type."""
        payload: dict[str, Any] = {"type": self.type, "tick": self.tick, "position": self.position}
        for name in ("match", "prev", "delivery_id", "window_start", "window_end"):
            value = getattr(self, name)
            if value is not None:
                payload[name] = value
        if self.matches is not None:
            payload["matches"] = list(self.matches)
        if self.events is not None:
            payload["events"] = [event.to_dict() for event in self.events]
        if self.dropped:
            payload["dropped"] = self.dropped
        return payload

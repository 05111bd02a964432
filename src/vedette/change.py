"""The one currency between packages: what changed, where in a change log, and what a watcher is told.

`Change` is a before and an after image of one element at a `Position`; a node or edge of the graph, a document of
a collection and a file of a folder all change this way. `Event` is what one watch is told about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from vedette.values import Value

__all__ = ["Change", "Event", "Image", "Position"]

Image = Mapping[str, Value]
"""An element as data: `id`, `_type`, its attributes by name, and `_targets` when it is an edge."""


class Position(NamedTuple):
    """A place in a change log. The epoch changes only when the log is lost or restored from a backup."""

    epoch: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One element before and after. `before` is None for a creation, `after` for a deletion."""

    collection: str
    """The element's type, or the collection or folder that it belongs to."""
    key: str
    """The element's id within its collection."""
    before: Image | None
    after: Image | None
    position: Position
    tick: int
    """The graph's logical time of the commit; for other sources the reader's own count."""
    time: datetime
    """When the source says it happened."""
    source: str = "graph"
    partition: int = 0
    transaction: str | None = None
    cause: str | None = None
    """What led to this change (a statement, a rule, a trigger, a delivery); travels to the delivery."""
    event_id: str | None = None
    """The source's own name of this change, by which a repeat is known."""


@dataclass(slots=True, kw_only=True)
class Event:
    """What a watch is told: seeds/watch-statement.md, Event Types."""

    type: str
    tick: int
    position: int
    """Consecutive per watch, given at detection; numbers jump only where `dropped` says so."""
    match: Mapping[str, Any] | None = None
    prev: Mapping[str, Any] | None = None
    matches: tuple[Mapping[str, Any], ...] | None = None
    delivery_id: str | None = None
    window_start: datetime | None = None
    window_end: datetime | None = None
    events: tuple[Event, ...] | None = None
    dropped: int = 0
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Room for hosts to say more; never part of the payload's fixed fields."""

    def to_dict(self) -> dict[str, Any]:
        """The payload: `type`, `tick`, `position`, then only the fields that this type of event has."""
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

"""What a change means for a watch: a match appeared, disappeared, or looks different."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["ADDED", "CHANGED", "REMOVED", "Delta"]

ADDED = "added"
REMOVED = "removed"
CHANGED = "changed"


class Delta:
    """One event's content, shared by every watch that is told it. Positions are each watch's own."""

    __slots__ = ("events", "identity", "match", "matches", "order", "prev", "type", "window")

    def __init__(
        self,
        type: str,
        match: Mapping[str, Any] | None,
        prev: Mapping[str, Any] | None = None,
        identity: Any = None,
        order: tuple[Any, ...] = (),
    ) -> None:
        self.type = type
        self.match = match
        self.prev = prev
        self.identity = identity
        """What the event is about: events of one identity are never reordered among themselves."""
        self.order = order
        """Values of the ordering terms; of the old row for `removed`."""
        self.matches: list[Mapping[str, Any]] | None = None
        """`initial`: all matches there are."""
        self.events: list[Any] | None = None
        """`window`: the entries collected in it."""
        self.window: tuple[Any, Any] | None = None
        """Start and end of the window that the event belongs to."""

    def __repr__(self) -> str:
        return f"<{self.type} {self.match}>"

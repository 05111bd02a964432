"""One watch: its constants over a shape, its status, and the events that wait for its owner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from vedette.watch.aggregates import Groups
from vedette.watch.buffer import AppendResult, BufferedEvent, EventBuffer
from vedette.watch.delta import Delta
from vedette.watch.options import WatchOptions
from vedette.watch.shapes.shape import WatchShape
from vedette.watch.status import WatchStatus

__all__ = ["Watch", "WatchDetails"]

_KEPT_ERRORS = 1000


@dataclass(slots=True, eq=False)
class WatchDetails:
    """What few watches need; made when it is first asked for."""

    name: str | None = None
    errors: list[Any] = field(default_factory=list)
    """Records for the owner: E8003, E8005, E8007, withdrawals; the latest thousand."""
    wakeup: Callable[[], None] | None = None
    """Called when there may be something to hand out."""
    groups: Groups | None = None
    """State of an aggregating watch."""
    group_rows: dict[Any, dict[str, Any]] = field(default_factory=dict)
    """What an aggregating watch was last told, by group."""
    distinct_counts: dict[Any, int] = field(default_factory=dict)
    """DISTINCT: how many matches yield each row."""
    last_result: dict[Any, Any] | None = None
    """Re-evaluated watches: the last result, identity ▸ row."""
    last_order_values: dict[Any, tuple[Any, ...]] = field(default_factory=dict)
    """Re-evaluated watches with an order: the values of the ordering terms, by identity."""
    window: Any = None
    actions: Any = None
    """ON MATCH DO: what to carry out for every match that appears."""
    actions_size: int = 0
    has_altered_options: bool = False
    """Whether ALTER WATCH changed an option."""
    has_altered_filter: bool = False
    """Whether it changed the filter."""
    expiry_timer: Any = None
    """Reliable watches without a session: when they end."""
    cursor: dict[str, int] | None = None
    """Lasting watches: what is stored of how far they are."""
    evaluated_ms: int = 0
    """Re-evaluated watches: when that was done last, and the time before."""
    previously_evaluated_at_ms: int = 0
    first_sequence: int = 0
    """Lasting watches: the first commit after their initial snapshot, or after what they look back to."""
    unconfirmed: list[BufferedEvent] = field(default_factory=list)
    """Reliable watches: handed out, and not confirmed yet."""
    last_confirmed: BufferedEvent | None = None
    """Reliable watches: of what is confirmed, the one with the highest position."""
    is_unindexed: bool = False
    """Whether it stands in no index of its hub for now: it catches up, or waits to."""
    followed_sequence: int | None = None
    """Reliable watches whose memory is full: the last commit they were told; the journal has the rest."""
    current_commit: tuple[int, int] = (0, 0)
    """The commit that is being told, and the position before its first event."""
    last_window_groups: dict[Any, dict[str, Any]] = field(default_factory=dict)
    """Aggregating watches with a window: what the last window end told."""
    window_timer: Any = None
    request: Any = None

    def add_error(self, error: Any) -> None:
        """A record for the owner."""
        self.errors.append(error)
        del self.errors[:-_KEPT_ERRORS]
        if self.wakeup is not None:
            self.wakeup()

    def reset(self) -> None:
        self.groups = None
        self.group_rows = {}
        self.distinct_counts = {}
        self.last_result = None

    def start_groups(self, shape: WatchShape) -> Groups:
        if self.groups is None:
            assert shape.returns is not None
            self.groups = Groups(shape.returns.aggregates)
        return self.groups


class Watch:
    """A million of them must fit: what is rare stands in `details`, buffers come with the first event."""

    __slots__ = (
        "actor",
        "buffer",
        "constants",
        "created_ms",
        "delivered_count",
        "known_details",
        "last_event_ms",
        "number",
        "options",
        "position",
        "session_id",
        "shape",
        "status",
    )

    def __init__(
        self,
        number: int,
        shape: WatchShape,
        constants: tuple[Any, ...],
        options: WatchOptions,
        *,
        owner: str | None,
        actor: str | None,
        created_ms: int,
    ) -> None:
        self.number = number
        self.shape = shape
        self.constants = constants
        self.options = options
        self.session_id = owner
        """The session's id; None when the watch outlived its session."""
        self.actor = actor
        self.status = WatchStatus.ACTIVE
        self.position = 0
        """How many events were detected so far; the next one gets this number plus one."""
        self.delivered_count = 0
        self.created_ms = created_ms
        self.last_event_ms = 0
        self.buffer: EventBuffer | None = None
        self.known_details: WatchDetails | None = None
        """`details`, when they were asked for."""

    @property
    def details(self) -> WatchDetails:
        if self.known_details is None:
            self.known_details = WatchDetails()
        return self.known_details

    @property
    def has_details(self) -> bool:
        return self.known_details is not None

    @property
    def buffered_count(self) -> int:
        return len(self.buffer) if self.buffer is not None else 0

    def append_event(self, delta: Delta, tick: int, sequence: int, now_ms: int) -> AppendResult:
        """Give the event its position and let it wait."""
        self.position = position = self.position + 1
        self.last_event_ms = now_ms
        buffer, options = self.buffer, self.options
        if buffer is None:
            buffer = self.buffer = EventBuffer()
        if options.delivery == "reliable":
            entry = BufferedEvent(position, sequence, tick, delta, 0, self._commit_start(sequence), now_ms)
            limit = _ENDLESS
        else:
            entry = BufferedEvent(position, sequence, tick, delta, 0, 0, now_ms)
            limit = options.buffer
        unread = options.on_full == "block" and self.session_id is None  # a trigger waits for nobody
        outcome = buffer.append(entry, limit, "drop" if unread else options.on_full)
        if options.deliver_on == "tick" and outcome is not AppendResult.OVERFLOW:
            snapshot = delta.type == "initial" and delta.window is None
            buffer.held_for_tick += not snapshot  # it answers the one who made the watch
        return outcome

    def _commit_start(self, sequence: int) -> int:
        details = self.details
        if details.current_commit[0] != sequence:
            details.current_commit = (sequence, self.position - 1)
        return details.current_commit[1]

    def prepend_events(self, entries: list[BufferedEvent]) -> None:
        """Hand these out again, before everything else."""
        if self.buffer is None:
            self.buffer = EventBuffer()
        self.buffer.prepend(entries)

    @property
    def is_durable(self) -> bool:
        """Whether it outlives its session: reliable watches and triggers do."""
        triggers = self.known_details is not None and self.known_details.actions is not None
        return self.options.delivery == "reliable" or triggers

    def take_events(self, durable: int, limit: int | None) -> list[BufferedEvent]:
        """What may be handed out now, in the watch's order."""
        buffer = self.buffer
        if buffer is None or self.status is not WatchStatus.ACTIVE:
            return []
        ready = buffer.take(durable, limit, tuple(descending for _, descending in self.shape.order))
        self.delivered_count += len(ready)
        if not buffer and not buffer.unreported_drops:
            self.buffer = None
        return ready


_ENDLESS = 1 << 62

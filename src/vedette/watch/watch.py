"""One watch: its constants for a shape, its status, and its undelivered events."""

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
    """Rarely needed state, created on first use."""

    name: str | None = None
    errors: list[Any] = field(default_factory=list)
    """Records for the owner: E8003, E8005, E8007, withdrawals. The latest thousand are kept."""
    wakeup: Callable[[], None] | None = None
    """Called when there may be something to deliver."""
    groups: Groups | None = None
    """Aggregation state."""
    group_rows: dict[Any, dict[str, Any]] = field(default_factory=dict)
    """The last published row of each group."""
    distinct_counts: dict[Any, int] = field(default_factory=dict)
    """DISTINCT: the number of matches per row."""
    last_result: dict[Any, Any] | None = None
    """Re-evaluated watches: the last result, identity ▸ row."""
    last_order_values: dict[Any, tuple[Any, ...]] = field(default_factory=dict)
    """Re-evaluated watches with an order: the order values by identity."""
    window: Any = None
    actions: Any = None
    """ON MATCH DO: the actions to run for every new match."""
    actions_size: int = 0
    has_altered_options: bool = False
    """True if ALTER WATCH changed an option."""
    has_altered_filter: bool = False
    """True if ALTER WATCH changed the filter."""
    expiry_timer: Any = None
    """Ends a reliable watch that has no session."""
    cursor: dict[str, int] | None = None
    """Durable watches: the stored position."""
    evaluated_ms: int = 0
    """Re-evaluated watches: time of the last evaluation, and of the one before."""
    previously_evaluated_at_ms: int = 0
    first_sequence: int = 0
    """Durable watches: the first commit after the initial snapshot or after the `since` tick."""
    unconfirmed: list[BufferedEvent] = field(default_factory=list)
    """Reliable watches: delivered but unconfirmed events."""
    last_confirmed: BufferedEvent | None = None
    """Reliable watches: the confirmed event with the highest position."""
    is_unindexed: bool = False
    """True while the watch is in no index, because it is catching up or waits to."""
    followed_sequence: int | None = None
    """Lagging watches: the last evaluated commit. Later ones are replayed from the log."""
    current_commit: tuple[int, int] = (0, 0)
    """The commit being evaluated, and the position before its first event."""
    last_window_groups: dict[Any, dict[str, Any]] = field(default_factory=dict)
    """Aggregating watches with a window: the groups published at the last window end."""
    window_timer: Any = None
    request: Any = None

    def add_error(self, error: Any) -> None:
        """Add a record for the owner."""
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
    """One watch.

    Small, because there may be millions: rare state is in `details`, the buffer exists only with events.
    """

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
        """The session's id; None if the watch has outlived its session."""
        self.actor = actor
        self.status = WatchStatus.ACTIVE
        self.position = 0
        """The number of events so far. The next event gets this number plus one."""
        self.delivered_count = 0
        self.created_ms = created_ms
        self.last_event_ms = 0
        self.buffer: EventBuffer | None = None
        self.known_details: WatchDetails | None = None
        """`details` if they exist."""

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
        """Number the event and append it to the buffer."""
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
        # a trigger without a session has no reader to wait for
        unread = options.on_full == "block" and self.session_id is None
        outcome = buffer.append(entry, limit, "drop" if unread else options.on_full)
        if options.deliver_on == "tick" and outcome is not AppendResult.OVERFLOW:
            snapshot = delta.type == "initial" and delta.window is None
            buffer.held_for_tick += not snapshot  # the initial snapshot is not held
        return outcome

    def _commit_start(self, sequence: int) -> int:
        details = self.details
        if details.current_commit[0] != sequence:
            details.current_commit = (sequence, self.position - 1)
        return details.current_commit[1]

    def prepend_events(self, entries: list[BufferedEvent]) -> None:
        """Deliver these events again, before all others."""
        if self.buffer is None:
            self.buffer = EventBuffer()
        self.buffer.prepend(entries)

    @property
    def is_durable(self) -> bool:
        """True if the watch outlives its session: reliable watches and triggers."""
        triggers = self.known_details is not None and self.known_details.actions is not None
        return self.options.delivery == "reliable" or triggers

    def take_events(self, durable: int, limit: int | None) -> list[BufferedEvent]:
        """Remove and return the deliverable events, in the watch's order."""
        buffer = self.buffer
        if buffer is None or self.status is not WatchStatus.ACTIVE:
            return []
        ready = buffer.take(durable, limit, tuple(descending for _, descending in self.shape.order))
        self.delivered_count += len(ready)
        if not buffer and not buffer.unreported_drops:
            self.buffer = None
        return ready


_ENDLESS = 1 << 62

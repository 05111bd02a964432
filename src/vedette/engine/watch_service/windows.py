"""Closes the windows of watches when the clock reaches their end, and publishes their content."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from vedette.errors import VedetteError
from vedette.values import timestamp_to_ms
from vedette.watch.buffer import BufferedEvent, ordered
from vedette.watch.delta import ADDED, CHANGED, REMOVED, Delta
from vedette.watch.evaluation.effects import CommitEffects
from vedette.watch.status import WatchStatus
from vedette.watch.watch import Watch

if TYPE_CHECKING:
    from vedette.engine.watch_service.service import WatchService

__all__ = ["WindowTimers"]


class WindowTimers:
    """Timers for window ends."""

    def __init__(self, watching: WatchService) -> None:
        self._watching = watching
        self.windowed_watches: dict[int, Watch] = {}
        """Watches with windows, by number."""
        self._flushing = False

    def start(self, watch: Watch) -> None:
        """Start the windows of the watch, if it has any."""
        if (
            watch.has_details
            and watch.details.window is not None
            and watch.status is not WatchStatus.CANCELLED
        ):
            self.windowed_watches[watch.number] = watch
            clock, window = self._watching.database.clock, watch.details.window
            window.due = clock.monotonic() + max(0.0, (window.end - clock.now()).total_seconds())
            self._schedule(watch)

    def _schedule(self, watch: Watch) -> None:
        clock = self._watching.database.clock
        watch.details.window_timer = clock.call_at(
            watch.details.window.due, lambda: self._close_window(watch)
        )

    def stop(self, watch: Watch) -> None:
        if self.windowed_watches.pop(watch.number, None) is not None:
            watch.details.window_timer.cancel()

    def _close_window(self, watch: Watch) -> None:
        with self._watching.database.lock:
            if watch.status is WatchStatus.CANCELLED or self._watching.database.read_only is not None:
                return
            state, clock = self._watching.database.state, self._watching.database.clock
            watch.details.window.follow(clock.now(), clock.monotonic())
            effects = CommitEffects(state.tick, state.sequence, timestamp_to_ms(clock.now()))
            try:
                deltas = self._grouped_window(watch) if watch.shape.aggregates else self._event_window(watch)
            except VedetteError as error:
                self._watching.fail(watch, error)
                return
            if deltas and watch.details.cursor is not None:
                effects.sequence = self._watching.durable_watches.reserve_window_positions(watch, len(deltas))
            if deltas and effects.sequence > self._watching.database.log_writer.durable_sequence:
                self._flush_soon()
            for delta in deltas:
                effects.append_event(watch, delta)
            self._watching.apply_effects(effects, 0)
            self._schedule(watch)

    def _flush_soon(self) -> None:
        """Schedule one flush for all windows that end now, after all other due timers."""
        if not self._flushing:
            self._flushing = True
            clock = self._watching.database.clock
            clock.call_at(clock.monotonic(), self._flush)

    def _flush(self) -> None:
        self._flushing = False
        log_writer = self._watching.database.log_writer
        with suppress(VedetteError):  # the database reports a failed store itself
            log_writer.wait_durable(log_writer.submitted_sequence)

    def _event_window(self, watch: Watch) -> list[Delta]:
        start, end, held = watch.details.window.close()
        if not held:
            return []
        delta = Delta("window", None)
        delta.window = (start, end)
        entries = [BufferedEvent(position, 0, tick, inner) for position, (tick, inner) in enumerate(held, 1)]
        if watch.shape.order:
            by_attribute = ordered(entries, tuple(descending for _, descending in watch.shape.order))
            entries = [entry._replace(position=position) for position, entry in enumerate(by_attribute, 1)]
        delta.events = entries
        return [delta]

    def _grouped_window(self, watch: Watch) -> list[Delta]:
        """At every window end publish every group; the first time as one `initial`."""
        window, details = watch.details.window, watch.details
        context = self._watching.watch_context(watch, self._watching.database.state.graph)
        rows = watch.shape.full_query.run(context)
        if window.window.kind == "sliding":
            recent = window.recent()
            rows = [row for row in rows if watch.shape.identity(row) in recent]
        start, end, _ = window.close()
        new, old = watch.shape.evaluate_groups(rows, context), details.last_window_groups
        details.last_window_groups = new
        if window.first:
            window.first = False
            delta = Delta("initial", None)
            delta.matches = list(new.values())
            deltas = [delta]
        else:
            deltas = [
                Delta(CHANGED, r, old[i], i) if i in old else Delta(ADDED, r, None, i) for i, r in new.items()
            ]
            deltas += [Delta(REMOVED, r, None, i) for i, r in old.items() if i not in new]
        for delta in deltas:
            delta.window = (start, end)
        return deltas

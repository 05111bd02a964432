"""Periodic work of a database: ticks and trimming of the log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from vedette.clock import Timer
from vedette.engine.commit.lock import LockScope
from vedette.errors import VedetteError
from vedette.values import timestamp_to_ms

if TYPE_CHECKING:
    from vedette.engine.database import Database

__all__ = ["Maintenance"]

_TRIM_SECONDS = 600.0
log = logging.getLogger(__name__)


class Maintenance:
    """Timers of one database; `stop` cancels them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._timers: dict[str, Timer] = {}
        self._stopped = False

    def start(self) -> None:
        settings = self._database.settings
        if settings.tick_interval_seconds > 0:
            self._schedule(settings.tick_interval_seconds, "tick", self._tick)
        if self._database.is_persistent:
            self._trim()
            self._schedule(
                min(_TRIM_SECONDS, max(1.0, settings.log_retention_seconds / 10)), "trim", self._trim
            )

    def stop(self) -> None:
        self._stopped = True
        for due in self._timers.values():
            due.cancel()

    def _schedule(self, seconds: float, name: str, act: Callable[[], None]) -> None:
        clock = self._database.clock

        def again() -> None:
            if self._stopped:
                return
            try:
                act()
            except VedetteError as error:
                log.warning(
                    "Maintenance task %s failed: %s",
                    name,
                    error,
                    extra={
                        "action": f"maintenance.{name}",
                        "tenant": self._database.name,
                        "code": error.code,
                    },
                )
            self._schedule(seconds, name, act)

        self._timers[name] = clock.call_at(clock.monotonic() + seconds, again)

    def _tick(self) -> None:
        """Advance logical time and release the events held for the tick."""
        database, lock_scope = self._database, LockScope(self._database)
        with lock_scope:
            database.check_writable()
            commit = database.state.advance_ticks(1, database.clock.now())
            database.log_writer.append(commit.sequence, commit)
            database.watching.ticked(commit)
        database.watching.triggers.run_pending(lock_scope)

    def _trim(self) -> None:
        """Trim log rows older than the retention. Watches that still need them are cancelled."""
        database, lock_scope = self._database, LockScope(self._database)
        with lock_scope:
            database.watching.durable_watches.advance_idle_positions()
        database.wait_durable(lock_scope)
        oldest = timestamp_to_ms(database.clock.now()) - int(database.settings.log_retention_seconds * 1000)
        database.trim_log(oldest)

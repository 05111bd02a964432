"""Sources in the handshake: MongoDB, PostgreSQL and the graph's log have health, backoff, breaker and priority, too.

Each has a row in `watch_folders`, of the type `source` and with the id `source:NAME`, so that `wqm watch list` shows it
and `pause`, `disable`, `reset-errors`, `update --priority` act on it: at once, for the row is read before every look.
"""

from __future__ import annotations

import re
from contextlib import suppress
from random import Random

from vedette.clock import Clock
from vedette.errors import FolderError, VedetteError
from vedette.handshake.config import HealthConfig, WatchFolderConfig, WatchType
from vedette.handshake.failures import Failure, FailureKind
from vedette.handshake.health import HealthStatus, check_admission
from vedette.handshake.tables.handshake_db import HandshakeTables
from vedette.sources.reader import quick_pause
from vedette.sources.records import Source

__all__ = ["StoredSourceHealth", "source_watch", "source_watch_id"]

_LOOK_SECONDS = 0.2
"""Between two looks at the row of a source that is read."""
_WAIT_SECONDS = 0.5
"""Between two looks at the row of one that is not."""
_SUCCESS_SECONDS = 60.0
"""A healthy source notes its success so often; others note each."""
_KINDS = {"E6104": FailureKind.NETWORK, "E6106": FailureKind.PERMISSION}


def source_watch_id(name: str) -> str:
    return f"source:{name}"


def source_watch(source: Source) -> WatchFolderConfig:
    return WatchFolderConfig(
        watch_id=source_watch_id(source.name),
        path=re.sub(r"(//[^/@:]*):[^/@]*@", r"\1:***@", source.address),
        collection=f"{source.name}::*",
        watch_type=WatchType.SOURCE,
    )


class StoredSourceHealth:
    """`vedette.sources.reader.SourceHealth`, kept in the tables."""

    def __init__(
        self,
        source: Source,
        tables: HandshakeTables,
        clock: Clock,
        chance: Random,
        health: HealthConfig | None = None,
    ) -> None:
        self._id = source_watch_id(source.name)
        self._tables, self._clock, self._chance = tables, clock, chance
        self._health = health or HealthConfig()
        self._failures = 0
        self._next_check = self._next_success_write = clock.monotonic()
        tables.register_source(source_watch(source))

    def seconds_until_allowed(self) -> float:
        now = self._clock.monotonic()
        if now < self._next_check:
            return 0.0
        self._next_check = now + _LOOK_SECONDS
        row = self._tables.refresh_watch(self._id)
        held = (
            row.paused_at is not None or self._id in self._tables.system_state.degradation().paused_watch_ids
        )
        if held or not check_admission(row.health, self._clock.now(), 0, self._health).is_allowed:
            self._next_check = now
            return _WAIT_SECONDS
        if row.health.health_status is not HealthStatus.HEALTHY:
            self._next_success_write = now  # each success brings it a step further
        return 0.0

    def record_success(self) -> None:
        self._failures = 0
        now = self._clock.monotonic()
        if now >= self._next_success_write:
            self._next_success_write = now + _SUCCESS_SECONDS
            self._tables.record_success(self._id, "")

    def record_failure(self, error: VedetteError) -> float:
        self._failures += 1
        self._next_check = self._next_success_write = self._clock.monotonic()
        self._tables.record_error(
            self._id,
            Failure(
                path="",  # it has no files: nothing to exclude
                error_type=error.code,
                message=error.text,
                at=self._clock.now(),
                kind=_KINDS.get(error.code, FailureKind.UNKNOWN),
            ),
        )
        return quick_pause(self._failures, self._chance)

    def unregister(self) -> None:
        with suppress(FolderError):  # E4501: somebody was quicker
            self._tables.remove_watch(self._id)

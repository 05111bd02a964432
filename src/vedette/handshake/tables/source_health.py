"""Health of database sources: MongoDB, PostgreSQL and the graph's log.

Each source has a row in `watch_folders` of type `source` with the id `source:NAME`. `wqm watch list` shows it, and
`pause`, `disable`, `reset-errors` and `update --priority` apply to it at once, because the row is read before every
poll.
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
from vedette.sources.reader import backoff_seconds
from vedette.sources.records import Source

__all__ = ["StoredSourceHealth", "source_watch", "source_watch_id"]

_CHECK_INTERVAL_SECONDS = 0.2
"""Interval between two reads of the row of an active source."""
_WAITING_CHECK_SECONDS = 0.5
"""Interval between two reads of the row of a source that must wait."""
_SUCCESS_INTERVAL_SECONDS = 60.0
"""Interval between two recorded successes of a healthy source. Other sources record every success."""
_FAILURE_KIND_BY_CODE = {"E6104": FailureKind.NETWORK, "E6106": FailureKind.PERMISSION}


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
    """Implements `vedette.sources.reader.SourceHealth` with a row of `watch_folders`."""

    def __init__(
        self,
        source: Source,
        tables: HandshakeTables,
        clock: Clock,
        rng: Random,
        health: HealthConfig | None = None,
    ) -> None:
        self._id = source_watch_id(source.name)
        self._tables, self._clock, self._rng = tables, clock, rng
        self._health = health or HealthConfig()
        self._failures = 0
        self._next_check = self._next_success_write = clock.monotonic()
        tables.register_source(source_watch(source))

    def seconds_until_allowed(self) -> float:
        now = self._clock.monotonic()
        if now < self._next_check:
            return 0.0
        self._next_check = now + _CHECK_INTERVAL_SECONDS
        row = self._tables.refresh_watch(self._id)
        is_paused = row.paused_at is not None or self._id in self._tables.paused_by_load()
        if is_paused or not check_admission(row.health, self._clock.now(), 0, self._health).is_allowed:
            self._next_check = now
            return _WAITING_CHECK_SECONDS
        if row.health.health_status is not HealthStatus.HEALTHY:
            self._next_success_write = now  # every success improves the health by one step
        return 0.0

    def record_success(self) -> None:
        self._failures = 0
        now = self._clock.monotonic()
        if now >= self._next_success_write:
            self._next_success_write = now + _SUCCESS_INTERVAL_SECONDS
            self._tables.record_success(self._id, "")

    def record_failure(self, error: VedetteError) -> float:
        self._failures += 1
        self._next_check = self._next_success_write = self._clock.monotonic()
        self._tables.record_error(
            self._id,
            Failure(
                path="",  # a source has no files to exclude
                error_type=error.code,
                message=error.text,
                at=self._clock.now(),
                kind=_FAILURE_KIND_BY_CODE.get(error.code, FailureKind.UNKNOWN),
            ),
        )
        return backoff_seconds(self._failures, self._rng)

    def unregister(self) -> None:
        with suppress(FolderError):  # E4501: another process removed it
            self._tables.remove_watch(self._id)

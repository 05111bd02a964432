"""`handshake.db`: folder watches, their health, error patterns and exclusions. Every method is one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any, Self

from vedette.clock import Clock, SystemClock, system_random
from vedette.errors import FolderError
from vedette.handshake.circuit_breaker import CircuitState
from vedette.handshake.config import (
    CoordinatorConfig,
    DegradationConfig,
    HealthConfig,
    PatternConfig,
    WatchFolderConfig,
)
from vedette.handshake.error_patterns import ErrorPattern, PatternType, add_occurrence, pattern_keys
from vedette.handshake.exclusions import Exclusion, exclusion_from_pattern
from vedette.handshake.failures import Failure, FailureKind, FaultDomain
from vedette.handshake.health import (
    WatchHealth,
    disable,
    enable,
    end_cooldown,
    record_error,
    record_success,
    reset_errors,
)
from vedette.handshake.tables import sql
from vedette.handshake.tables.rows import (
    WatchRow,
    config_values,
    exclusion_from_row,
    health_values,
    pattern_from_row,
    timestamp_text,
    watch_from_row,
)
from vedette.handshake.tables.schema import APPLICATION_ID, MIGRATIONS
from vedette.handshake.tables.system_state import SystemState
from vedette.handshake.validation import check_collection_name, require
from vedette.storage.sqlite.shared_file import SharedFile

__all__ = ["FILE_NAME", "HandshakeTables", "RecordedOutcomes"]

FILE_NAME = "handshake.db"
"""In the data directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedOutcomes:
    """What changed for a watch when file outcomes were recorded."""

    health: WatchHealth
    new_exclusions: tuple[Exclusion, ...]
    """Exclusions of files that failed too often in a row."""
    circuit_opened: bool
    """True if the circuit breaker opened."""


class HandshakeTables:
    """The tables of `handshake.db`. Several processes may use them at the same time.

    Every method reads, decides and writes in one transaction. Do not read a row, decide, and write it later: another
    process may have changed the row.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock | None = None,
        health: HealthConfig | None = None,
        patterns: PatternConfig | None = None,
        rng: Random | None = None,
        degradation: DegradationConfig | None = None,
        coordinator: CoordinatorConfig | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._health, self._patterns = health or HealthConfig(), patterns or PatternConfig()
        self._rng = rng or system_random()
        self._file = SharedFile(path, APPLICATION_ID, MIGRATIONS)
        self.system_state = SystemState(
            self._file, self._clock, degradation=degradation, coordinator=coordinator
        )
        """Degradation, the sink's breaker and capacity."""

    def paused_by_load(self) -> frozenset[str]:
        """Return the ids of the watches that the degradation level pauses."""
        return frozenset(self.system_state.degradation().paused_watch_ids)

    @property
    def path(self) -> Path:
        return self._file.path

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Watches

    def add_watch(self, config: WatchFolderConfig) -> WatchRow:
        """Add a watch. Raises E4502 if the id exists or the collection name is not allowed."""
        check_collection_name(config.collection)
        with self._file.write_transaction(durable=True) as db:
            taken = db.execute(sql.GET_WATCH, (config.watch_id,)).fetchone()
            require(taken is None, "watch_id", config.watch_id, "an id that no other watch has")
            _insert(db, config, timestamp_text(self._clock.now()))
            return self._row(db, config.watch_id)

    def register_source(self, config: WatchFolderConfig) -> WatchRow:
        """Add the row of a source, or update its address. Called at every start.

        Other values, such as the priority, are kept.
        """
        with self._file.write_transaction(durable=True) as db:
            now = timestamp_text(self._clock.now())
            if db.execute(sql.GET_WATCH, (config.watch_id,)).fetchone() is None:
                _insert(db, config, now)
            else:
                stored = self._row(db, config.watch_id).config
                moved = replace(stored, path=config.path, collection=config.collection)
                db.execute(sql.SAVE_WATCH, (*config_values(moved), now, config.watch_id))
            return self._row(db, config.watch_id)

    def update_watch(self, watch_id: str, **changes: Any) -> WatchRow:
        """Change fields of the configuration. Other fields keep the values of concurrent changes."""
        fixed = sorted({"watch_id", "enabled"} & set(changes))
        require(
            not fixed,
            "changes",
            fixed,
            "other fields; `watch_id` is fixed, and `enabled` is changed by enable and disable",
        )
        with self._file.write_transaction(durable=True) as db:
            before = self._row(db, watch_id).config
            config = replace(before, **changes)
            if config.collection != before.collection:
                check_collection_name(config.collection)
            db.execute(sql.SAVE_WATCH, (*config_values(config), timestamp_text(self._clock.now()), watch_id))
            return self._row(db, watch_id)

    def remove_watch(self, watch_id: str) -> None:
        """Remove the watch with its error patterns and exclusions."""
        with self._file.write_transaction(durable=True) as db:
            self._row(db, watch_id)
            db.execute(sql.REMOVE_WATCH, (watch_id,))

    def watches(self) -> list[WatchRow]:
        with self._file.read_transaction() as db:
            return [watch_from_row(row) for row in _rows(db, sql.WATCHES)]

    def watch(self, watch_id: str) -> WatchRow:
        """Return the watch. Raises E4501 if it does not exist."""
        with self._file.read_transaction() as db:
            return self._row(db, watch_id)

    def find_watch(self, id_or_path: str) -> WatchRow:
        """Find a watch by id or path. Raises E4501 if there is none, or if several watches have the path."""
        with self._file.read_transaction() as db:
            rows = _rows(db, sql.GET_WATCH, id_or_path) or _rows(db, sql.BY_PATH, id_or_path)
        if len(rows) > 1:
            ids = ", ".join(row["watch_id"] for row in rows)
            raise FolderError(
                "E4501",
                f"several watches have the path {id_or_path}: name one of {ids}",
                fields={"path": id_or_path, "matches": [row["watch_id"] for row in rows]},
            )
        if not rows:
            raise _unknown_watch_error(id_or_path)
        return watch_from_row(rows[0])

    # Health

    def record_outcomes(
        self, watch_id: str, *, succeeded: Sequence[str] = (), failed: Sequence[Failure] = ()
    ) -> RecordedOutcomes:
        """Record file outcomes, successes first. Only failures in the fault domain of the watch count."""
        charged = [failure for failure in failed if failure.policy.fault_domain is FaultDomain.WATCH]
        with self._file.write_transaction() as db:
            before = health = self._row(db, watch_id).health
            now = self._clock.now()
            for path in succeeded:
                health = record_success(health, now, self._health)
                db.execute(sql.DELETE_FILE_PATTERN, (watch_id, path))
            excluded: list[Exclusion] = []
            for failure in charged:
                network = failure.kind is FailureKind.NETWORK
                health = record_error(health, now, failure.message, self._health, self._rng, network=network)
                excluded += self._count_patterns(db, watch_id, failure)
            self._put_health(db, watch_id, health)
            opened = (
                health.circuit.state is CircuitState.OPEN and before.circuit.state is not CircuitState.OPEN
            )
            return RecordedOutcomes(health=health, new_exclusions=tuple(excluded), circuit_opened=opened)

    def record_error(self, watch_id: str, failure: Failure) -> RecordedOutcomes:
        return self.record_outcomes(watch_id, failed=[failure])

    def record_success(self, watch_id: str, path: str) -> WatchHealth:
        return self.record_outcomes(watch_id, succeeded=[path]).health

    def mark_healthy(self, watch_id: str) -> WatchHealth:
        """Record one success and make the watch healthy at once, bypassing the gradual recovery."""
        now = self._clock.now()
        return self._update_health(
            watch_id, lambda health: record_success(reset_errors(health, now), now, self._health)
        )

    def refresh_watch(self, watch_id: str) -> WatchRow:
        """Return the current row. A circuit whose cooldown has ended becomes half open."""
        with self._file.write_transaction() as db:
            row = self._row(db, watch_id)
            health = end_cooldown(row.health, self._clock.now(), self._health)
            if health is row.health:
                return row
            self._put_health(db, watch_id, health)
            return self._row(db, watch_id)

    def reset_errors(self, watch_id: str, *, clear_patterns: bool = False) -> WatchHealth:
        """Make the watch healthy and close its circuit.

        Keeps totals and `enabled`. A running daemon sees it at its next step.
        """
        now = self._clock.now()
        with self._file.write_transaction(durable=True) as db:
            health = reset_errors(self._row(db, watch_id).health, now)
            self._put_health(db, watch_id, health)
            if clear_patterns:
                db.execute(sql.CLEAR_PATTERNS, (watch_id,))
            return health

    def enable_watch(self, watch_id: str) -> WatchHealth:
        now = self._clock.now()
        return self._update_health(watch_id, lambda health: enable(health, now), durable=True)

    def disable_watch(self, watch_id: str) -> WatchHealth:
        return self._update_health(watch_id, disable, durable=True)

    # Requests to the daemon, and its reports

    def pause_watch(self, watch_id: str) -> WatchRow:
        """Pause the watch: changes are recorded but not processed."""
        return self._set_column(watch_id, "paused_at", timestamp_text(self._clock.now()))

    def resume_watch(self, watch_id: str) -> WatchRow:
        return self._set_column(watch_id, "paused_at", None)

    def request_rescan(self, watch_id: str) -> WatchRow:
        """Request a complete scan of the folder."""
        return self._set_column(watch_id, "rescan_requested_at", timestamp_text(self._clock.now()))

    def record_scan(self, watch_id: str, began_at: datetime) -> WatchRow:
        """Record a finished scan. Clears a rescan request that is older than the scan; a later request is kept."""
        with self._file.write_transaction() as db:
            row = self._row(db, watch_id)
            asked = row.rescan_requested_at
            is_met = asked is not None and asked <= began_at
            remaining = None if is_met else timestamp_text(asked)
            statement = "UPDATE watch_folders SET last_scan = ?, rescan_requested_at = ? WHERE watch_id = ?"
            db.execute(statement, (timestamp_text(began_at), remaining, watch_id))
            return self._row(db, watch_id)

    def set_watch_mode(self, watch_id: str, mode: str) -> WatchRow:
        """Store the mode of the watcher: `native` or `polling`."""
        return self._set_column(watch_id, "watch_mode", mode)

    def set_availability(self, watch_id: str, reason: str | None) -> WatchRow:
        """Store why the folder is unavailable, with the time since when; None if it is available."""
        with self._file.write_transaction() as db:
            row = self._row(db, watch_id)
            since = None if reason is None else timestamp_text(row.unavailable_since or self._clock.now())
            statement = (
                "UPDATE watch_folders SET unavailable_since = ?, unavailable_reason = ? WHERE watch_id = ?"
            )
            db.execute(statement, (since, reason, watch_id))
            return self._row(db, watch_id)

    # Error patterns and exclusions

    def patterns(self, watch_id: str) -> list[ErrorPattern]:
        """Return the error patterns of a watch, systematic ones first."""
        with self._file.read_transaction() as db:
            self._row(db, watch_id)
            return [pattern_from_row(row) for row in _rows(db, sql.PATTERNS, watch_id)]

    def exclusions(self, watch_id: str, *, also_expired: bool = False) -> list[Exclusion]:
        with self._file.read_transaction() as db:
            self._row(db, watch_id)
            found = [exclusion_from_row(row) for row in _rows(db, sql.EXCLUSIONS, watch_id)]
        now = self._clock.now()
        return [each for each in found if also_expired or each.is_active(now)]

    def add_exclusion(self, watch_id: str, exclusion: Exclusion) -> None:
        with self._file.write_transaction(durable=True) as db:
            self._row(db, watch_id)
            _upsert_exclusion(db, watch_id, exclusion)

    def remove_exclusions(self, watch_id: str, value: str) -> list[Exclusion]:
        """Remove and return the exclusions of a value, of any type. The failure count of a file is cleared too."""
        with self._file.write_transaction(durable=True) as db:
            self._row(db, watch_id)
            found = [exclusion_from_row(row) for row in _rows(db, sql.EXCLUSIONS, watch_id)]
            removed = [each for each in found if each.value == value]
            for each in removed:
                db.execute(sql.DELETE_EXCLUSION, (watch_id, str(each.type), each.value))
                db.execute(sql.DELETE_FILE_PATTERN, (watch_id, each.value))
            return removed

    # Helpers

    def _row(self, db: sqlite3.Connection, watch_id: str) -> WatchRow:
        rows = _rows(db, sql.GET_WATCH, watch_id)
        if not rows:
            raise _unknown_watch_error(watch_id)
        return watch_from_row(rows[0])

    def _update_health(
        self, watch_id: str, step: Callable[[WatchHealth], WatchHealth], *, durable: bool = False
    ) -> WatchHealth:
        with self._file.write_transaction(durable=durable) as db:
            health = step(self._row(db, watch_id).health)
            self._put_health(db, watch_id, health)
            return health

    def _put_health(self, db: sqlite3.Connection, watch_id: str, health: WatchHealth) -> None:
        db.execute(sql.UPDATE_HEALTH, (*health_values(health), timestamp_text(self._clock.now()), watch_id))

    def _set_column(self, watch_id: str, column: str, value: str | None) -> WatchRow:
        with self._file.write_transaction(durable=True) as db:
            self._row(db, watch_id)
            db.execute(f"UPDATE watch_folders SET {column} = ? WHERE watch_id = ?", (value, watch_id))  # noqa: S608 - the column name is a constant
            return self._row(db, watch_id)

    def _count_patterns(self, db: sqlite3.Connection, watch_id: str, failure: Failure) -> Iterable[Exclusion]:
        for key in pattern_keys(failure):
            rows = _rows(db, sql.GET_PATTERN, watch_id, str(key.type), key.value)
            pattern = add_occurrence(
                pattern_from_row(rows[0]) if rows else None, key, failure, self._patterns
            )
            _put_pattern(db, watch_id, pattern)
            exclusion = exclusion_from_pattern(pattern, self._clock.now())
            if exclusion is not None and key.type is PatternType.FILE_REPEATED:
                _upsert_exclusion(db, watch_id, exclusion)
                yield exclusion


def _rows(db: sqlite3.Connection, statement: str, *values: Any) -> list[dict[str, Any]]:
    cursor = db.execute(statement, values)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def _insert(db: sqlite3.Connection, config: WatchFolderConfig, now: str | None) -> None:
    health = WatchHealth() if config.enabled else disable(WatchHealth())
    values = (config.watch_id, *config_values(config), *health_values(health), now, now)
    db.execute(sql.ADD_WATCH, values)


def _put_pattern(db: sqlite3.Connection, watch_id: str, pattern: ErrorPattern) -> None:
    values = (
        watch_id,
        str(pattern.key.type),
        pattern.key.value,
        pattern.occurrence_count,
        timestamp_text(pattern.first_seen_at),
        timestamp_text(pattern.last_seen_at),
        int(pattern.is_systematic),
        pattern.confidence_score,
        pattern.last_message,
    )
    db.execute(sql.ADD_PATTERN, values)


def _upsert_exclusion(db: sqlite3.Connection, watch_id: str, exclusion: Exclusion) -> None:
    values = (
        watch_id,
        str(exclusion.type),
        exclusion.value,
        exclusion.reason,
        exclusion.error_count,
        timestamp_text(exclusion.created_at),
        timestamp_text(exclusion.expires_at),
        int(exclusion.is_permanent),
    )
    db.execute(sql.UPSERT_EXCLUSION, values)


def _unknown_watch_error(name: str) -> FolderError:
    return FolderError(
        "E4501",
        f"no watch has the id or path {name}; `wqm watch list` shows all watches",
        fields={"watch": name},
    )

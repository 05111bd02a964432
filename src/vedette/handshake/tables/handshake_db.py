"""`handshake.db`: watches, their health, error patterns and exclusions; every verb is one transaction."""

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
    refuse_collection,
    refuse_unless,
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
    exclusion_from,
    health_values,
    pattern_from,
    timestamp_text,
    watch_from_row,
)
from vedette.handshake.tables.schema import APPLICATION_ID, MIGRATIONS
from vedette.handshake.tables.system_state import SystemState
from vedette.storage.sqlite.shared_file import SharedFile

__all__ = ["FILE_NAME", "HandshakeTables", "RecordedOutcomes"]

FILE_NAME = "handshake.db"
"""In the data directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedOutcomes:
    """What became of a watch by what its files did."""

    health: WatchHealth
    excluded: tuple[Exclusion, ...]
    """Files that failed so often in a row that they are left alone from now on."""
    opened: bool
    """Whether its circuit opened by this."""


class HandshakeTables:
    """The tables in `path`, made when it is not there. Any number of processes may have them open.

    The usual mistake: to read a row, decide, and write later. Every verb here reads and writes in one transaction.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock | None = None,
        health: HealthConfig | None = None,
        patterns: PatternConfig | None = None,
        chance: Random | None = None,
        degradation: DegradationConfig | None = None,
        coordinator: CoordinatorConfig | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._health, self._patterns = health or HealthConfig(), patterns or PatternConfig()
        self._chance = chance or system_random()
        self._file = SharedFile(path, APPLICATION_ID, MIGRATIONS)
        self.system_state = SystemState(
            self._file, self._clock, degradation=degradation, coordinator=coordinator
        )
        """Degradation, the breaker of the sink, capacity."""

    @property
    def path(self) -> Path:
        return self._file.path

    def data_version(self) -> int:
        """Changes when another process has written: what was read before may be out of date."""
        return self._file.data_version()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- watches

    def add_watch(self, config: WatchFolderConfig) -> WatchRow:
        """A new watch; E4502 when the id is taken, or no store would take the collection."""
        refuse_collection(config.collection)
        with self._file.write_transaction(durable=True) as db:
            taken = db.execute(sql.GET_WATCH, (config.watch_id,)).fetchone()
            refuse_unless(taken is None, "watch_id", config.watch_id, "an id that no watch has yet")
            _insert(db, config, timestamp_text(self._clock.now()))
            return self._row(db, config.watch_id)

    def save_watch(self, config: WatchFolderConfig) -> WatchRow:
        """Write the configuration of a watch that is there. Its health, and whether it is enabled, stay as they are."""
        with self._file.write_transaction(durable=True) as db:
            self._row(db, config.watch_id)
            values = (*config_values(config), timestamp_text(self._clock.now()), config.watch_id)
            db.execute(sql.SAVE_WATCH, values)
            return self._row(db, config.watch_id)

    def register_source(self, config: WatchFolderConfig) -> WatchRow:
        """Make the watch, or write where it is now if it is there: for sources that come up with every start.

        The rest, such as its priority, stays as somebody has set it.
        """
        with self._file.write_transaction(durable=True) as db:
            now = timestamp_text(self._clock.now())
            if db.execute(sql.GET_WATCH, (config.watch_id,)).fetchone() is None:
                _insert(db, config, now)
            else:
                kept = self._row(db, config.watch_id).config
                moved = replace(kept, path=config.path, collection=config.collection)
                db.execute(sql.SAVE_WATCH, (*config_values(moved), now, config.watch_id))
            return self._row(db, config.watch_id)

    def update_watch(self, watch_id: str, **changes: Any) -> WatchRow:
        """Change some fields of the configuration, and none of those that somebody else changes meanwhile."""
        fixed = sorted({"watch_id", "enabled"} & set(changes))
        refuse_unless(
            not fixed, "changes", fixed, "other fields (enable and disable have verbs of their own)"
        )
        with self._file.write_transaction(durable=True) as db:
            before = self._row(db, watch_id).config
            config = replace(before, **changes)
            if config.collection != before.collection:
                refuse_collection(config.collection)
            db.execute(sql.SAVE_WATCH, (*config_values(config), timestamp_text(self._clock.now()), watch_id))
            return self._row(db, watch_id)

    def remove_watch(self, watch_id: str) -> None:
        """With its patterns and exclusions."""
        with self._file.write_transaction(durable=True) as db:
            self._row(db, watch_id)
            db.execute(sql.REMOVE_WATCH, (watch_id,))

    def watches(self) -> list[WatchRow]:
        with self._file.read_transaction() as db:
            return [watch_from_row(row) for row in _rows(db, sql.WATCHES)]

    def watch(self, watch_id: str) -> WatchRow:
        """E4501 when there is none."""
        with self._file.read_transaction() as db:
            return self._row(db, watch_id)

    def find_watch(self, id_or_path: str) -> WatchRow:
        """By id, else by path; E4501 when there is none or the path has several."""
        with self._file.read_transaction() as db:
            rows = _rows(db, sql.GET_WATCH, id_or_path) or _rows(db, sql.BY_PATH, id_or_path)
        if len(rows) > 1:
            ids = ", ".join(row["watch_id"] for row in rows)
            raise FolderError(
                "E4501",
                f"several watches have the path {id_or_path}: name one of {ids}",
                fields={"path": id_or_path},
            )
        if not rows:
            raise _unknown(id_or_path)
        return watch_from_row(rows[0])

    # ---- health

    def record_outcomes(
        self, watch_id: str, *, succeeded: Sequence[str] = (), failed: Sequence[Failure] = ()
    ) -> RecordedOutcomes:
        """What files of a watch did, successes first. Only failures that are charged to the watch count."""
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
                health = record_error(
                    health, now, failure.message, self._health, self._chance, network=network
                )
                excluded += self._count_patterns(db, watch_id, failure)
            self._put_health(db, watch_id, health)
            opened = (
                health.circuit.state is CircuitState.OPEN and before.circuit.state is not CircuitState.OPEN
            )
            return RecordedOutcomes(health=health, excluded=tuple(excluded), opened=opened)

    def record_error(self, watch_id: str, failure: Failure) -> RecordedOutcomes:
        return self.record_outcomes(watch_id, failed=[failure])

    def record_success(self, watch_id: str, path: str) -> WatchHealth:
        return self.record_outcomes(watch_id, succeeded=[path]).health

    def mark_healthy(self, watch_id: str) -> WatchHealth:
        """One success that makes it healthy at once, past the machine (ruling 5): for tests and repairs."""
        now = self._clock.now()
        return self._step(
            watch_id, lambda health: record_success(reset_errors(health, now), now, self._health)
        )

    def refresh_watch(self, watch_id: str) -> WatchRow:
        """The row as it is now; a circuit whose cooldown is over has become half open."""
        with self._file.write_transaction() as db:
            row = self._row(db, watch_id)
            health = end_cooldown(row.health, self._clock.now(), self._health)
            if health is row.health:
                return row
            self._put_health(db, watch_id, health)
            return self._row(db, watch_id)

    def reset_errors(self, watch_id: str, *, clear_patterns: bool = False) -> WatchHealth:
        """Healthy and the circuit closed; totals and `enabled` stay. Acts on a running daemon at its next step."""
        now = self._clock.now()
        with self._file.write_transaction(durable=True) as db:
            health = reset_errors(self._row(db, watch_id).health, now)
            self._put_health(db, watch_id, health)
            if clear_patterns:
                db.execute(sql.CLEAR_PATTERNS, (watch_id,))
            return health

    def enable_watch(self, watch_id: str) -> WatchHealth:
        now = self._clock.now()
        return self._step(watch_id, lambda health: enable(health, now), durable=True)

    def disable_watch(self, watch_id: str) -> WatchHealth:
        return self._step(watch_id, disable, durable=True)

    # ---- what the daemon and the command line tell each other

    def pause_watch(self, watch_id: str) -> WatchRow:
        """Changes are noted and wait."""
        return self._note(watch_id, "paused_at", timestamp_text(self._clock.now()))

    def resume_watch(self, watch_id: str) -> WatchRow:
        return self._note(watch_id, "paused_at", None)

    def request_rescan(self, watch_id: str) -> WatchRow:
        """Ask for a comparison of the whole folder with what is known of it."""
        return self._note(watch_id, "rescan_requested_at", timestamp_text(self._clock.now()))

    def record_scan(self, watch_id: str, began_at: datetime) -> WatchRow:
        """A scan that began then is done; a request from before is met by it, a later one stays."""
        with self._file.write_transaction() as db:
            row = self._row(db, watch_id)
            asked = row.rescan_requested_at
            met = asked is not None and asked <= began_at
            left = None if met else timestamp_text(asked)
            statement = "UPDATE watch_folders SET last_scan = ?, rescan_requested_at = ? WHERE watch_id = ?"
            db.execute(statement, (timestamp_text(began_at), left, watch_id))
            return self._row(db, watch_id)

    def set_watch_mode(self, watch_id: str, mode: str) -> WatchRow:
        """`native` or `polling`."""
        return self._note(watch_id, "watch_mode", mode)

    def set_availability(self, watch_id: str, reason: str | None) -> WatchRow:
        """None: the folder is there. Else why it is not, with the moment when that was first seen."""
        with self._file.write_transaction() as db:
            row = self._row(db, watch_id)
            since = None if reason is None else timestamp_text(row.unavailable_since or self._clock.now())
            statement = (
                "UPDATE watch_folders SET unavailable_since = ?, unavailable_reason = ? WHERE watch_id = ?"
            )
            db.execute(statement, (since, reason, watch_id))
            return self._row(db, watch_id)

    # ---- patterns and exclusions

    def patterns(self, watch_id: str) -> list[ErrorPattern]:
        """Systematic ones first."""
        with self._file.read_transaction() as db:
            self._row(db, watch_id)
            return [pattern_from(row) for row in _rows(db, sql.PATTERNS, watch_id)]

    def exclusions(self, watch_id: str, *, also_expired: bool = False) -> list[Exclusion]:
        with self._file.read_transaction() as db:
            self._row(db, watch_id)
            found = [exclusion_from(row) for row in _rows(db, sql.EXCLUSIONS, watch_id)]
        now = self._clock.now()
        return [each for each in found if also_expired or each.is_active(now)]

    def add_exclusion(self, watch_id: str, exclusion: Exclusion) -> None:
        with self._file.write_transaction(durable=True) as db:
            self._row(db, watch_id)
            _exclude(db, watch_id, exclusion)

    def remove_exclusions(self, watch_id: str, value: str) -> list[Exclusion]:
        """Those that were lifted, whatever their type; with a file its count of failures is forgotten as well."""
        with self._file.write_transaction(durable=True) as db:
            self._row(db, watch_id)
            found = [exclusion_from(row) for row in _rows(db, sql.EXCLUSIONS, watch_id)]
            lifted = [each for each in found if each.value == value]
            for each in lifted:
                db.execute(sql.DELETE_EXCLUSION, (watch_id, str(each.type), each.value))
                db.execute(sql.DELETE_FILE_PATTERN, (watch_id, each.value))
            return lifted

    # ---- inside

    def _row(self, db: sqlite3.Connection, watch_id: str) -> WatchRow:
        rows = _rows(db, sql.GET_WATCH, watch_id)
        if not rows:
            raise _unknown(watch_id)
        return watch_from_row(rows[0])

    def _step(
        self, watch_id: str, step: Callable[[WatchHealth], WatchHealth], *, durable: bool = False
    ) -> WatchHealth:
        with self._file.write_transaction(durable=durable) as db:
            health = step(self._row(db, watch_id).health)
            self._put_health(db, watch_id, health)
            return health

    def _put_health(self, db: sqlite3.Connection, watch_id: str, health: WatchHealth) -> None:
        db.execute(sql.UPDATE_HEALTH, (*health_values(health), timestamp_text(self._clock.now()), watch_id))

    def _note(self, watch_id: str, column: str, value: str | None) -> WatchRow:
        with self._file.write_transaction(durable=True) as db:
            self._row(db, watch_id)
            db.execute(f"UPDATE watch_folders SET {column} = ? WHERE watch_id = ?", (value, watch_id))  # noqa: S608 - a name of ours
            return self._row(db, watch_id)

    def _count_patterns(self, db: sqlite3.Connection, watch_id: str, failure: Failure) -> Iterable[Exclusion]:
        for key in pattern_keys(failure):
            rows = _rows(db, sql.GET_PATTERN, watch_id, str(key.type), key.value)
            pattern = add_occurrence(pattern_from(rows[0]) if rows else None, key, failure, self._patterns)
            _put_pattern(db, watch_id, pattern)
            exclusion = exclusion_from_pattern(pattern, self._clock.now())
            if exclusion is not None and key.type is PatternType.FILE_REPEATED:
                _exclude(db, watch_id, exclusion)
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


def _exclude(db: sqlite3.Connection, watch_id: str, exclusion: Exclusion) -> None:
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


def _unknown(name: str) -> FolderError:
    return FolderError(
        "E4501", f"no watch has the id or path {name}: `wqm watch list` shows all", fields={"watch": name}
    )

"""State of the whole daemon in the table `system_state`: degradation, the sink's breaker, capacity."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping

from vedette.clock import Clock
from vedette.handshake.capacity import Capacity, Grant, reconcile, release, request
from vedette.handshake.circuit_breaker import (
    SINK_BREAKER,
    CircuitBreaker,
    SinkAdmission,
    admit_tasks,
    record_breaker_failure,
    record_breaker_success,
)
from vedette.handshake.config import CircuitConfig, CoordinatorConfig, DegradationConfig
from vedette.handshake.degradation import (
    Degradation,
    LoadObservation,
    PauseDecision,
    apply_observation,
    decide_pauses,
)
from vedette.handshake.tables import sql
from vedette.handshake.tables.rows import (
    capacity_from_json,
    capacity_to_json,
    circuit_from_json,
    circuit_to_json,
    degradation_from_json,
    degradation_to_json,
    timestamp_text,
)
from vedette.storage.sqlite.shared_file import SharedFile

__all__ = ["CAPACITY_KEY", "DEGRADATION_KEY", "SINK_KEY", "SystemState"]

DEGRADATION_KEY = "graceful_degradation_state"
SINK_KEY = "sink_circuit"
CAPACITY_KEY = "queue_capacity"


class SystemState:
    """Reads, decides and writes in one transaction per method, so that no capacity is granted twice."""

    def __init__(
        self,
        file: SharedFile,
        clock: Clock,
        *,
        degradation: DegradationConfig | None = None,
        coordinator: CoordinatorConfig | None = None,
        sink: CircuitConfig = SINK_BREAKER,
    ) -> None:
        self._file, self._clock = file, clock
        self._degradation = degradation or DegradationConfig()
        self._coordinator = coordinator or CoordinatorConfig()
        self._sink = sink

    # Degradation

    def degradation(self) -> Degradation:
        with self._file.read_transaction() as db:
            return self._load_degradation(db)

    def check_load(self, load: LoadObservation, watches: Iterable[tuple[str, int]]) -> PauseDecision:
        """Update the level and the paused watches.

        `watches` has the id and effective priority of every enabled watch.
        """
        with self._file.write_transaction() as db:
            state = apply_observation(self._load_degradation(db), load, self._clock.now(), self._degradation)
            decision = decide_pauses(state, watches, self._degradation)
            self._put(db, DEGRADATION_KEY, degradation_to_json(decision.state))
            return decision

    # Sink

    def sink_breaker(self) -> CircuitBreaker:
        with self._file.read_transaction() as db:
            return self._load_sink(db)

    def admit_sink_tasks(self, wanted: int, in_flight: int) -> SinkAdmission:
        """Return how many tasks may be claimed from the queue now."""
        with self._file.write_transaction() as db:
            before = self._load_sink(db)
            answer = admit_tasks(before, wanted, in_flight, self._clock.now(), self._sink)
            if answer.circuit is not before:
                self._put(db, SINK_KEY, circuit_to_json(answer.circuit))
            return answer

    def record_sink_failure(self) -> CircuitBreaker:
        return self._update_sink(
            lambda circuit: record_breaker_failure(circuit, self._clock.now(), self._sink)
        )

    def record_sink_success(self) -> CircuitBreaker:
        return self._update_sink(
            lambda circuit: record_breaker_success(circuit, self._clock.now(), self._sink)
        )

    # Capacity

    def capacity(self) -> Capacity:
        with self._file.read_transaction() as db:
            return self._load_capacity(db)

    def request_capacity(self, watch_id: str, count: int, queue_depth: int) -> Grant:
        """Grant the whole request or nothing. A refused watch keeps its paths and asks again."""
        with self._file.write_transaction() as db:
            grant = request(self._load_capacity(db), watch_id, count, queue_depth, self._coordinator)
            self._put(db, CAPACITY_KEY, capacity_to_json(grant.capacity))
            return grant

    def release_capacity(self, watch_id: str, count: int, queue_depth: int) -> Capacity:
        return self._update_capacity(
            lambda capacity: release(capacity, watch_id, count, queue_depth, self._coordinator)
        )

    def reconcile_capacity(self, held: Mapping[str, int], queue_depth: int) -> Capacity:
        """Replace the counts by the actual number of queued tasks per watch."""
        return self._update_capacity(
            lambda capacity: reconcile(capacity, held, queue_depth, self._coordinator)
        )

    # Helpers

    def _update_sink(self, step: Callable[[CircuitBreaker], CircuitBreaker]) -> CircuitBreaker:
        with self._file.write_transaction() as db:
            before = self._load_sink(db)
            circuit = step(before)
            if circuit != before:
                self._put(db, SINK_KEY, circuit_to_json(circuit))
            return circuit

    def _update_capacity(self, step: Callable[[Capacity], Capacity]) -> Capacity:
        with self._file.write_transaction() as db:
            capacity = step(self._load_capacity(db))
            self._put(db, CAPACITY_KEY, capacity_to_json(capacity))
            return capacity

    def _load_degradation(self, db: sqlite3.Connection) -> Degradation:
        text = _get(db, DEGRADATION_KEY)
        return Degradation.initial(self._clock.now()) if text is None else degradation_from_json(text)

    def _load_sink(self, db: sqlite3.Connection) -> CircuitBreaker:
        text = _get(db, SINK_KEY)
        return CircuitBreaker() if text is None else circuit_from_json(text)

    def _load_capacity(self, db: sqlite3.Connection) -> Capacity:
        text = _get(db, CAPACITY_KEY)
        return Capacity() if text is None else capacity_from_json(text)

    def _put(self, db: sqlite3.Connection, key: str, value: str) -> None:
        db.execute(sql.PUT_STATE, (key, value, timestamp_text(self._clock.now())))


def _get(db: sqlite3.Connection, key: str) -> str | None:
    row = db.execute(sql.GET_STATE, (key,)).fetchone()
    return None if row is None else str(row[0])

"""Graceful degradation: reduce work under load.

Theory of operation. Each check looks at queue depth, throughput and memory; the highest of the three levels is the
target. A higher target is applied at once. A lower one takes time: after the cooldown at a level, `recovery_steps`
consecutive better checks lower the level by one, and the cooldown starts again. A check that is not better restarts the
count. Throughput counts only when the queue was non-empty for a whole window, so an idle system is not slow.

       higher target: at once, to that level
    normal ⇄ light ⇄ moderate ⇄ severe ⇄ critical
       lower target: one level, after 60 s and 3 better checks

A level multiplies the interval of the ingest worker, the debounce and the scan interval of polling watches, and pauses
watches by their effective priority. A disabled watch is not paused, because it does not run
(docs/design/decisions/0054-handshake-degradation.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import IntEnum

from vedette.handshake.config import DegradationConfig

__all__ = [
    "Degradation",
    "DegradationLevel",
    "LoadObservation",
    "PauseDecision",
    "ThroughputMeter",
    "apply_observation",
    "decide_pauses",
    "level_for_load",
    "polling_multiplier",
]


class DegradationLevel(IntEnum):
    """In rising order of load."""

    NORMAL = 0
    LIGHT = 1
    MODERATE = 2
    SEVERE = 3
    CRITICAL = 4

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadObservation:
    queue_depth: int
    throughput: float | None = None
    """Tasks per second over the window; None if the queue was empty during part of it."""
    memory_usage: float = 0.0
    """Share of the machine's memory, from 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Degradation:
    """The current level. Stored in `system_state` under `graceful_degradation_state`."""

    level: DegradationLevel
    entered_at: datetime
    last_check_at: datetime | None = None
    """None before the first check."""
    queue_depth: int = 0
    throughput: float | None = None
    memory_usage: float = 0.0
    paused_watch_ids: tuple[str, ...] = ()
    polling_interval_multiplier: float = 1.0
    recovery_step: int = 0
    """Consecutive better checks since the cooldown at this level ended."""

    @staticmethod
    def initial(now: datetime) -> Degradation:
        """The state before the first check."""
        return Degradation(level=DegradationLevel.NORMAL, entered_at=now)

    def validate(self, config: DegradationConfig) -> None:
        """Raise AssertionError if no sequence of checks leads to this state."""
        assert 0 <= self.recovery_step < config.recovery_steps, self
        assert self.level is not DegradationLevel.NORMAL or self.recovery_step == 0, self
        assert self.polling_interval_multiplier == polling_multiplier(self.level, config), self
        assert self.level >= DegradationLevel.MODERATE or not self.paused_watch_ids, self


def level_for_load(load: LoadObservation, config: DegradationConfig) -> DegradationLevel:
    """Return the highest of the levels for queue depth, throughput and memory."""
    return max(
        _by_depth(load.queue_depth, config),
        _by_throughput(load.throughput, config),
        _by_memory(load.memory_usage, config),
    )


def apply_observation(
    state: Degradation, load: LoadObservation, now: datetime, config: DegradationConfig
) -> Degradation:
    """Return the state after a check. Paused watches are unchanged; call `decide_pauses` next."""
    asked = level_for_load(load, config)
    seen = replace(
        state,
        last_check_at=now,
        queue_depth=load.queue_depth,
        throughput=load.throughput,
        memory_usage=load.memory_usage,
    )
    if asked > state.level:
        return _enter_level(seen, asked, now, config)
    if asked == state.level:
        return replace(seen, recovery_step=0)
    if now - state.entered_at < timedelta(seconds=config.recovery_cooldown_seconds):
        return seen
    if state.recovery_step + 1 < config.recovery_steps:
        return replace(seen, recovery_step=state.recovery_step + 1)
    return _enter_level(seen, DegradationLevel(state.level - 1), now, config)


def polling_multiplier(level: DegradationLevel, config: DegradationConfig) -> float:
    return {
        DegradationLevel.NORMAL: 1.0,
        DegradationLevel.LIGHT: config.polling_interval_light,
        DegradationLevel.MODERATE: config.polling_interval_moderate,
        DegradationLevel.SEVERE: config.polling_interval_severe,
        DegradationLevel.CRITICAL: config.polling_interval_critical,
    }[level]


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseDecision:
    """The watches that are paused now, and the difference from before."""

    state: Degradation
    newly_paused: tuple[str, ...]
    resumed: tuple[str, ...]


def decide_pauses(
    state: Degradation, watches: Iterable[tuple[str, int]], config: DegradationConfig
) -> PauseDecision:
    """Decide which watches are paused. `watches` has the id and effective priority of every enabled watch."""
    highest = {
        DegradationLevel.MODERATE: config.pause_priority_moderate,
        DegradationLevel.SEVERE: config.pause_priority_severe,
        DegradationLevel.CRITICAL: config.pause_priority_critical,
    }.get(state.level, -1)
    paused = {watch_id for watch_id, priority in watches if priority <= highest}
    before = set(state.paused_watch_ids)
    return PauseDecision(
        state=replace(state, paused_watch_ids=tuple(sorted(paused))),
        newly_paused=tuple(sorted(paused - before)),
        resumed=tuple(sorted(before - paused)),
    )


def _enter_level(
    state: Degradation, level: DegradationLevel, now: datetime, config: DegradationConfig
) -> Degradation:
    return replace(
        state,
        level=level,
        entered_at=now,
        recovery_step=0,
        polling_interval_multiplier=polling_multiplier(level, config),
    )


def _by_depth(depth: int, config: DegradationConfig) -> DegradationLevel:
    bounds = (
        (config.queue_depth_critical, DegradationLevel.CRITICAL),
        (config.queue_depth_severe, DegradationLevel.SEVERE),
        (config.queue_depth_moderate, DegradationLevel.MODERATE),
        (config.queue_depth_light, DegradationLevel.LIGHT),
    )
    return next((level for bound, level in bounds if depth >= bound), DegradationLevel.NORMAL)


def _by_throughput(throughput: float | None, config: DegradationConfig) -> DegradationLevel:
    if throughput is None:
        return DegradationLevel.NORMAL
    share = throughput / config.throughput_target
    if share < config.throughput_critical:
        return DegradationLevel.SEVERE
    return DegradationLevel.MODERATE if share < config.throughput_warning else DegradationLevel.NORMAL


def _by_memory(usage: float, config: DegradationConfig) -> DegradationLevel:
    if usage >= config.memory_critical:
        return DegradationLevel.SEVERE
    return DegradationLevel.MODERATE if usage >= config.memory_warning else DegradationLevel.NORMAL


class ThroughputMeter:
    """Measures tasks per second. `rate` is None until the queue has been non-empty for a whole window."""

    def __init__(self, window_seconds: float) -> None:
        self._window = timedelta(seconds=window_seconds)
        self._completions: deque[tuple[datetime, int]] = deque()
        self._busy_since: datetime | None = None

    def add_completed(self, count: int, now: datetime) -> None:
        self._completions.append((now, count))
        self._drop_expired(now)

    def observe_backlog(self, tasks: int, now: datetime) -> None:
        """Report the number of queued and claimed tasks. An empty queue ends the busy period."""
        if tasks <= 0:
            self._busy_since = None
        elif self._busy_since is None:
            self._busy_since = now

    def rate(self, now: datetime) -> float | None:
        if self._busy_since is None or now - self._busy_since < self._window:
            return None
        self._drop_expired(now)
        return sum(count for _, count in self._completions) / self._window.total_seconds()

    def _drop_expired(self, now: datetime) -> None:
        while self._completions and now - self._completions[0][0] >= self._window:
            self._completions.popleft()

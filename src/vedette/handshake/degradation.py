"""Doing less when there is too much to do: seeds/watch-queue-handshake.md, Graceful Degradation.

Theory of operation. Each check looks at queue depth, throughput and memory; the worst of the three is the level
that load asks for (ruling 12). A worse level is taken at once. A better one is earned: after the cooldown at a
level, so many better checks in a row lead one level down, where the cooldown begins anew (ruling 14); a check that
is not better starts the count again. Throughput counts only when the queue has had work for a whole window: an idle
system is not slow.

       asked level worse: at once, to that level
    normal ⇄ light ⇄ moderate ⇄ severe ⇄ critical
       asked level better: one down, after 60 s and 3 better checks

What a level does: it stretches the drain interval, the debounce flush and the scan interval of polling watches, and
it pauses watches by their effective priority. A disabled watch is not paused: it does not run anyway (ruling 15).
"""

from __future__ import annotations

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


L = DegradationLevel


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadObservation:
    queue_depth: int
    throughput: float | None = None
    """Tasks per second over the window; None when the queue had no work for a part of it."""
    memory_usage: float = 0.0
    """Share of the machine's memory, from 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Degradation:
    """Kept in `system_state` under `graceful_degradation_state`."""

    level: DegradationLevel
    entered_at: datetime
    last_check_at: datetime | None = None
    """None when nobody has looked at the load yet."""
    queue_depth: int = 0
    throughput: float | None = None
    memory_usage: float = 0.0
    paused_watch_ids: tuple[str, ...] = ()
    polling_interval_multiplier: float = 1.0
    recovery_step: int = 0
    """Better checks in a row, since the cooldown at this level was over."""

    @staticmethod
    def initial(now: datetime) -> Degradation:
        """How everything begins."""
        return Degradation(level=L.NORMAL, entered_at=now)

    def validate(self, config: DegradationConfig) -> None:
        """Raises when this is a state that no sequence of checks leads to."""
        assert 0 <= self.recovery_step < config.recovery_steps, self
        assert self.level is not L.NORMAL or self.recovery_step == 0, self
        assert self.polling_interval_multiplier == polling_multiplier(self.level, config), self
        assert self.level >= L.MODERATE or not self.paused_watch_ids, self


def level_for_load(load: LoadObservation, config: DegradationConfig) -> DegradationLevel:
    """The level that this load asks for: the worst of queue, throughput and memory."""
    return max(
        _by_depth(load.queue_depth, config),
        _by_throughput(load.throughput, config),
        _by_memory(load.memory_usage, config),
    )


def apply_observation(
    state: Degradation, load: LoadObservation, now: datetime, config: DegradationConfig
) -> Degradation:
    """The state after a check, with those paused so far; who is to be paused from now on, `pausing` says."""
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
    return _enter_level(seen, L(state.level - 1), now, config)


def polling_multiplier(level: DegradationLevel, config: DegradationConfig) -> float:
    return {
        L.NORMAL: 1.0,
        L.LIGHT: config.polling_interval_light,
        L.MODERATE: config.polling_interval_moderate,
        L.SEVERE: config.polling_interval_severe,
        L.CRITICAL: config.polling_interval_critical,
    }[level]


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseDecision:
    """Who is paused now, and who that changes."""

    state: Degradation
    newly_paused: tuple[str, ...]
    resumed: tuple[str, ...]


def decide_pauses(
    state: Degradation, watches: Iterable[tuple[str, int]], config: DegradationConfig
) -> PauseDecision:
    """`watches`: id and effective priority of every enabled watch; who is not among them is not paused."""
    highest = {
        L.MODERATE: config.pause_priority_moderate,
        L.SEVERE: config.pause_priority_severe,
        L.CRITICAL: config.pause_priority_critical,
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
        (config.queue_depth_critical, L.CRITICAL),
        (config.queue_depth_severe, L.SEVERE),
        (config.queue_depth_moderate, L.MODERATE),
        (config.queue_depth_light, L.LIGHT),
    )
    return next((level for bound, level in bounds if depth >= bound), L.NORMAL)


def _by_throughput(throughput: float | None, config: DegradationConfig) -> DegradationLevel:
    if throughput is None:
        return L.NORMAL
    share = throughput / config.throughput_target
    if share < config.throughput_critical:
        return L.SEVERE
    return L.MODERATE if share < config.throughput_warning else L.NORMAL


def _by_memory(usage: float, config: DegradationConfig) -> DegradationLevel:
    if usage >= config.memory_critical:
        return L.SEVERE
    return L.MODERATE if usage >= config.memory_warning else L.NORMAL

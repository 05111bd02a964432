"""Decides what to do about a lagging partition: a state machine with three states per partition. Pure.

Theory of operation. The lag of a partition is the age of its oldest undelivered change. Its *load* is the lag divided
by the limit. Thresholds have hysteresis: enter at 70 % and 90 %, leave below 60 %. An objective for the p99 of the
lag that is missed for a whole minute counts as the first threshold, until it is met for a minute.

    state       event   becomes     meaning
    normal      soft    shedding    subscriptions of low priority are skipped; they must resync
    normal      hard    degraded    nothing is matched or delivered; all subscribers must resync later
    shedding    hard    degraded
    shedding    calm    normal      subscriptions of low priority receive a resync
    degraded    calm    normal      a new epoch: all subscribers receive a resync, later changes follow their snapshots

Skipping is never silent: a subscriber that missed changes is informed once, when it can start over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from vedette.subscriptions.registry.records import PartitionMode, ReducedMode

__all__ = ["DEGRADE_AT_LOAD", "RECOVER_BELOW_LOAD", "SHED_AT_LOAD", "TRANSITIONS", "LagPolicy", "ModeChange"]

SHED_AT_LOAD, DEGRADE_AT_LOAD, RECOVER_BELOW_LOAD = 0.70, 0.90, 0.60
"""Thresholds of the load."""
OBJECTIVE_WINDOW_SECONDS = 60.0
"""Seconds for which the objective must be missed."""

Pressure: TypeAlias = Literal["soft", "hard", "calm", "steady"]

TRANSITIONS: Mapping[tuple[PartitionMode, Pressure], PartitionMode] = {
    ("normal", "soft"): "shedding",
    ("normal", "hard"): "degraded",
    ("shedding", "hard"): "degraded",
    ("shedding", "calm"): "normal",
    ("degraded", "calm"): "normal",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeChange:
    """A partition changes to another mode."""

    partition: int
    before: PartitionMode
    mode: PartitionMode
    reason: str

    @property
    def new_epoch(self) -> bool:
        """True if all subscribers of the partition must resync."""
        return self.before == "degraded"


@dataclass(slots=True)
class _Partition:
    mode: PartitionMode = "normal"
    samples: deque[tuple[float, float]] = field(default_factory=deque)
    """(time, lag) of the last minute."""
    since: float = 0.0
    """When it was first observed, or last changed."""
    sheds_for_objective: bool = False
    """True if it sheds because of the objective, not because of the load."""


class LagPolicy:
    """One per pipeline. Call `observe` with the lags of all partitions periodically; it returns mode changes."""

    def __init__(self, *, limit_seconds: float, target_p99_seconds: float) -> None:
        self._limit, self._target = limit_seconds, target_p99_seconds
        self._partitions: dict[int, _Partition] = {}

    def observe(self, lags: Mapping[int, float], now: float) -> list[ModeChange]:
        """`lags` has the seconds of every partition, 0 if nothing is undelivered; `now` is monotonic."""
        for gone in self._partitions.keys() - lags.keys():
            del self._partitions[gone]
        found = (self._observe_partition(partition, lag, now) for partition, lag in sorted(lags.items()))
        return [change for change in found if change is not None]

    def resume(self, modes: Mapping[int, ReducedMode], now: float) -> None:
        """Continue with modes that an earlier process set."""
        for partition, mode in modes.items():
            self._partitions[partition] = _Partition(mode=mode, samples=deque([(now, 0.0)]), since=now)

    def mode(self, partition: int) -> PartitionMode:
        known = self._partitions.get(partition)
        return known.mode if known is not None else "normal"

    def p99(self, partition: int) -> float:
        """p99 of the last minute, in seconds."""
        known = self._partitions.get(partition)
        lags = sorted(lag for _, lag in known.samples) if known is not None else []
        return lags[int(len(lags) * 0.99)] if lags else 0.0

    def _observe_partition(self, partition: int, lag: float, now: float) -> ModeChange | None:
        known = self._partitions.get(partition)
        if known is None:
            known = self._partitions[partition] = _Partition(since=now)
        known.samples.append((now, lag))
        while known.samples[0][0] < now - OBJECTIVE_WINDOW_SECONDS:
            known.samples.popleft()
        pressure, reason = self._pressure(partition, known, lag, now)
        mode = TRANSITIONS.get((known.mode, pressure))
        if mode is None:
            return None
        change = ModeChange(partition=partition, before=known.mode, mode=mode, reason=reason)
        known.mode, known.since, known.sheds_for_objective = mode, now, lag / self._limit < SHED_AT_LOAD
        return change

    def _pressure(self, partition: int, known: _Partition, lag: float, now: float) -> tuple[Pressure, str]:
        load = lag / self._limit
        if load >= DEGRADE_AT_LOAD:
            return "hard", f"the lag is {lag:.1f} s; the limit is {self._limit:.0f} s"
        if load >= SHED_AT_LOAD:
            return "soft", f"the lag is {lag:.1f} s; the limit is {self._limit:.0f} s"
        p99 = self.p99(partition)
        if known.mode == "normal" and now - known.since >= OBJECTIVE_WINDOW_SECONDS and p99 > self._target:
            return (
                "soft",
                f"the p99 of the lag was {p99:.1f} s for a minute; the objective is {self._target:.1f} s",
            )
        if load < RECOVER_BELOW_LOAD and not (
            known.mode == "shedding" and known.sheds_for_objective and p99 > self._target
        ):
            return "calm", "the partition has caught up"
        return "steady", ""

    def validate(self) -> None:
        """Raise AssertionError if an invariant does not hold; for tests."""
        for known in self._partitions.values():
            times = [at for at, _ in known.samples]
            assert times == sorted(times)
            assert times, "a partition without a sample"

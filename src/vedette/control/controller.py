"""Observe a running pipeline and act: index rebuilds, broadcasts, lagging partitions, status.

The decisions are made by pure state machines (`index_health`, `lag_policy`). This module applies them in an order
that loses nothing, and writes each to the audit log with its reason.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vedette.clock import Clock
from vedette.control.index_health import IndexHealth, Verdict
from vedette.control.lag_policy import LagPolicy, ModeChange
from vedette.control.status import PartitionFigures, PipelineFigures
from vedette.sources.journal.seam import CollectionJournal
from vedette.sources.records import Partition
from vedette.subscriptions.index.versions import Compactor
from vedette.subscriptions.registry.registry import SubscriptionRegistry
from vedette.values import timestamp_to_ms

__all__ = ["PipelineController", "ServiceObjectives"]

_audit = logging.getLogger("vedette.audit")
log = logging.getLogger(__name__)
RATE_WINDOW_BATCHES = 40
"""Number of batches over which rates are computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceObjectives:
    """Service level objectives."""

    lag_limit_seconds: float = 120.0
    delivery_p99_seconds: float = 5.0
    max_false_positive_rate: float = 0.05


class PipelineController:
    """One per pipeline, on its driver. Call `record_batch` after every batch and `check_lag` periodically."""

    def __init__(
        self,
        journal: CollectionJournal,
        registry: SubscriptionRegistry,
        compactor: Compactor,
        clock: Clock,
        targets: ServiceObjectives,
        tell_states: Callable[[list[Partition]], object],
    ) -> None:
        self._journal, self._registry, self._compactor, self._clock = journal, registry, compactor, clock
        self._health = IndexHealth(broadcast_share=targets.max_false_positive_rate)
        self._lag = LagPolicy(
            limit_seconds=targets.lag_limit_seconds, target_p99_seconds=targets.delivery_p99_seconds
        )
        self._lag.resume(registry.modes(), clock.monotonic())
        self._publish_statuses = tell_states
        self._members: dict[int, str] = {}
        self._totals: Counter[str] = Counter()
        self._recent: deque[tuple[float, Mapping[str, float]]] = deque(maxlen=RATE_WINDOW_BATCHES)

    def record_batch(self, counts: Mapping[str, float], seconds: float) -> None:
        """Record the counts of a batch and its duration; act on what they say about the index."""
        self._totals.update({name: round(value) for name, value in counts.items()})
        self._recent.append((seconds, counts))
        verdict = self._health.observe(
            absent=int(counts["absent_keys"]),
            passed=int(counts["false_positive_keys"]),
            changes=int(counts["changes"]),
            match_ms=counts["match_ms"],
            now=self._clock.monotonic(),
        )
        self._apply_index_decision(verdict)

    def add_counts(self, counts: Mapping[str, int]) -> None:
        """Add sums that say nothing about the index, from windows."""
        self._totals.update(counts)

    def check_lag(self, offset: int) -> list[PartitionFigures]:
        """Compute the lag of each partition behind the delivered offset, and change modes."""
        partitions, behind = self._journal.partitions(), self._journal.backlog(offset)
        now = timestamp_to_ms(self._clock.now())
        lags = {
            p.id: max(0.0, (now - behind[p.id].oldest_ms) / 1000) if p.id in behind else 0.0
            for p in partitions
        }
        for change in self._lag.observe(lags, self._clock.monotonic()):
            self._apply_mode_change(change)
        self._audit_gateways()
        return [
            PartitionFigures(
                partition=p.id,
                source=p.source,
                lag_changes=behind[p.id].changes if p.id in behind else 0,
                lag_seconds=lags[p.id],
                delivery_p99_seconds=self._lag.p99(p.id),
                state=p.state,
                reason=p.reason,
                mode=self._lag.mode(p.id),
            )
            for p in partitions
        ]

    def figures(self, **more: Any) -> PipelineFigures:
        seconds = sum(spent for spent, _ in self._recent)
        sums = Counter[str]()
        for _, counts in self._recent:
            sums.update(dict(counts))
        return PipelineFigures(
            index=self._health.state,
            fan_out=self._registry.fan_out(),
            events_per_second=sums["changes"] / seconds if seconds else 0.0,
            match_hit_rate=sums["matches"] / sums["candidates"] if sums["candidates"] else 0.0,
            bloom_false_positive_rate=sums["false_positive_keys"] / sums["absent_keys"]
            if sums["absent_keys"]
            else 0.0,
            broadcast_ratio=sums["broadcast"] / sums["deliveries"] if sums["deliveries"] else 0.0,
            subscriptions=self._registry.count(),
            gateways=len(self._registry.gateways()),
            totals={**self._totals, "quarantined": self._journal.quarantined_total()},
            **more,
        )

    def _audit_gateways(self) -> None:
        """A gateway that joins or leaves changes the routing."""
        known, self._members = self._members, {g.number: g.name for g in self._registry.gateways()}
        for word, numbers in (
            ("joined", self._members.keys() - known),
            ("left", known.keys() - self._members),
        ):
            for number in sorted(numbers):
                name = (self._members | known)[number]
                extra = {"action": "route.member", "gateway": name, "number": number, "reason": word}
                _audit.info("Gateway %s %s the ring", name, word, extra=extra)

    def _apply_index_decision(self, verdict: Verdict) -> None:
        if verdict.rebuild:
            for tenant, held in self._compactor.manifest.collections.items():
                for collection in held:
                    self._compactor.request_rebuild(tenant, collection)
            log.warning(
                "Rebuilding the subscription index: %s", verdict.reason, extra={"action": "index.rebuild"}
            )
        if verdict.fan_out != self._registry.fan_out():
            self._registry.set_fan_out(verdict.fan_out)
            extra = {"action": "route.broadcast", "fan_out": verdict.fan_out, "reason": verdict.reason}
            text = (
                "Broadcasting changes to all gateways: %s"
                if verdict.fan_out
                else "Broadcasting has ended: %s"
            )
            _audit.warning(text, verdict.reason, extra=extra)

    def _apply_mode_change(self, change: ModeChange) -> None:
        """Publish the new epoch before the mode ends, so that no client takes later changes for a complete stream."""
        if change.new_epoch:
            self._journal.start_new_epoch(change.partition)
            self._publish_statuses(self._journal.partitions())
        self._registry.set_mode(change.partition, change.mode)
        extra = {
            "action": "route.mode",
            "partition": change.partition,
            "mode": change.mode,
            "reason": change.reason,
        }
        _audit.warning(
            "Partition %d changed to mode %s: %s", change.partition, change.mode, change.reason, extra=extra
        )

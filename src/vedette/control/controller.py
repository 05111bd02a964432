"""Observes a running pipeline: decides on index rebuilds, broadcasts and partition modes, and computes the status.

The decisions are made by pure state machines (`index_health`, `lag_policy`). The controller feeds them, applies
decisions about the index, and returns mode changes to its caller, which must apply them in a certain order
(`processes.pipeline_process`). It writes every decision to the audit log with its reason.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from vedette.clock import Clock
from vedette.control.index_health import IndexDecision, IndexHealth
from vedette.control.lag_policy import LagPolicy, ModeChange
from vedette.control.status import PartitionSummary, PipelineStatus
from vedette.sources.journal.seam import CollectionJournal
from vedette.subscriptions.index.compactor import Compactor
from vedette.subscriptions.registry.registry import SubscriptionRegistry
from vedette.values import timestamp_to_ms

__all__ = ["LagReport", "PipelineController", "ServiceObjectives"]

_audit = logging.getLogger("vedette.audit")
log = logging.getLogger(__name__)
RATE_WINDOW_BATCHES = 40
"""Number of batches over which rates are computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceObjectives:
    """Limits that the controller enforces."""

    lag_limit_seconds: float = 120.0
    """Lag at which a partition counts as fully loaded (`lag_policy`)."""
    delivery_p99_seconds: float = 5.0
    """Objective for the 99th percentile of the lag."""
    max_false_positive_rate: float = 0.05
    """False-positive rate of the Bloom filters above which changes are broadcast."""


class LagReport(NamedTuple):
    """The lag of every partition, and the modes that must change because of it."""

    partitions: list[PartitionSummary]
    mode_changes: list[ModeChange]


class PipelineController:
    """One per pipeline, on its driver. Call `record_batch` after every batch and `check_lag` periodically.

    Not thread-safe.
    """

    def __init__(
        self,
        journal: CollectionJournal,
        registry: SubscriptionRegistry,
        compactor: Compactor,
        clock: Clock,
        objectives: ServiceObjectives,
    ) -> None:
        self._journal, self._registry, self._compactor, self._clock = journal, registry, compactor, clock
        self._health = IndexHealth(broadcast_rate=objectives.max_false_positive_rate)
        self._lag = LagPolicy(
            limit_seconds=objectives.lag_limit_seconds, target_p99_seconds=objectives.delivery_p99_seconds
        )
        self._lag.resume(registry.modes(), clock.monotonic())
        self._gateways: dict[int, str] = {}
        """Gateway numbers and names at the last check."""
        self._totals: Counter[str] = Counter()
        self._recent: deque[tuple[float, Mapping[str, float]]] = deque(maxlen=RATE_WINDOW_BATCHES)
        """Duration in seconds and counters of the last batches."""

    def record_batch(self, counters: Mapping[str, float], seconds: float) -> None:
        """Record the counters of a batch (`pipeline.task.Counters`) and its duration, and judge the index by them."""
        self._totals.update({name: round(value) for name, value in counters.items()})
        self._recent.append((seconds, counters))
        decision = self._health.observe(
            absent_keys=int(counters["absent_keys"]),
            false_positives=int(counters["false_positive_keys"]),
            changes=int(counters["changes"]),
            match_ms=counters["match_ms"],
            now=self._clock.monotonic(),
        )
        self._apply_index_decision(decision)

    def add_counts(self, counts: Mapping[str, int]) -> None:
        """Add to the totals what does not concern the index: the counts of the windows query."""
        self._totals.update(counts)

    def check_lag(self, delivered_offset: int) -> LagReport:
        """Compute how far each partition lags behind, and which modes must change.

        The caller must apply the mode changes: the policy takes them for applied.
        """
        partitions, backlog = self._journal.partitions(), self._journal.backlog(delivered_offset)
        now = timestamp_to_ms(self._clock.now())
        lags = {
            p.id: max(0.0, (now - backlog[p.id].oldest_ms) / 1000) if p.id in backlog else 0.0
            for p in partitions
        }
        mode_changes = self._lag.observe(lags, self._clock.monotonic())
        self._audit_gateways()
        summaries = [
            PartitionSummary(
                partition=p.id,
                source=p.source,
                lag_changes=backlog[p.id].changes if p.id in backlog else 0,
                lag_seconds=lags[p.id],
                delivery_p99_seconds=self._lag.p99(p.id),
                state=p.state,
                reason=p.reason,
                mode=self._lag.mode(p.id),
            )
            for p in partitions
        ]
        return LagReport(summaries, mode_changes)

    def status(self, **fields: Any) -> PipelineStatus:
        """Return the status. `fields` are those that the controller does not know: state, offset, partitions."""
        seconds = sum(spent for spent, _ in self._recent)
        sums = Counter[str]()
        for _, counters in self._recent:
            sums.update(dict(counters))
        return PipelineStatus(
            index=self._health.state,
            fan_out=self._registry.fan_out(),
            events_per_second=sums["changes"] / seconds if seconds else 0.0,
            match_hit_rate=_ratio(sums["matches"], sums["candidates"]),
            bloom_false_positive_rate=_ratio(sums["false_positive_keys"], sums["absent_keys"]),
            broadcast_ratio=_ratio(sums["broadcast"], sums["deliveries"]),
            subscriptions=self._registry.count(),
            gateways=len(self._registry.gateways()),
            totals={**self._totals, "quarantined": self._journal.quarantined_total()},
            **fields,
        )

    def _audit_gateways(self) -> None:
        """A gateway that joins or leaves changes the routing."""
        known, self._gateways = self._gateways, {g.number: g.name for g in self._registry.gateways()}
        for verb, numbers in (
            ("joined", self._gateways.keys() - known),
            ("left", known.keys() - self._gateways),
        ):
            for number in sorted(numbers):
                name = (self._gateways | known)[number]
                extra = {"action": "route.member", "gateway": name, "number": number, "reason": verb}
                _audit.info("Gateway %s %s the ring", name, verb, extra=extra)

    def _apply_index_decision(self, decision: IndexDecision) -> None:
        if decision.rebuild:
            for tenant, collections in self._compactor.manifest.collections.items():
                for collection in collections:
                    self._compactor.request_rebuild(tenant, collection)
            log.warning(
                "Rebuilding the subscription index: %s", decision.reason, extra={"action": "index.rebuild"}
            )
        if decision.fan_out != self._registry.fan_out():
            self._registry.set_fan_out(decision.fan_out)
            extra = {"action": "route.broadcast", "fan_out": decision.fan_out, "reason": decision.reason}
            if decision.fan_out:
                _audit.warning("Broadcasting changes unfiltered: %s", decision.reason, extra=extra)
            else:
                _audit.warning("Broadcasting has ended: the index is reliable again", extra=extra)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0

"""Configuration records of the handshake, with defaults and units.

A record validates its values when it is created (E4502), so the state machines do not check them again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from vedette.handshake.validation import (
    is_number,
    is_utf8,
    require,
    require_increasing,
    require_integers,
    require_positive,
)

__all__ = [
    "HIGHEST_PRIORITY",
    "UNLIMITED_DEPTH",
    "BackoffConfig",
    "CircuitConfig",
    "CoordinatorConfig",
    "DegradationConfig",
    "HealthConfig",
    "PatternConfig",
    "WatchFolderConfig",
    "WatchType",
]

HIGHEST_PRIORITY = 10
UNLIMITED_DEPTH = -1
"""`recursive_depth` of a watch without a depth limit."""


class WatchType(StrEnum):
    PROJECT = "project"
    LIBRARY = "library"
    SOURCE = "source"
    """A collection of MongoDB or PostgreSQL: it has health and priority too, and `path` is its address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchFolderConfig:
    """One folder that is watched. What happened to it is in `vedette.handshake.health.WatchHealth`."""

    watch_id: str
    path: str
    """Absolute; of a SOURCE its address without the password."""
    collection: str
    """Where its chunks go."""
    patterns: tuple[str, ...] = ()
    """Files to take, by glob; none is all."""
    ignore_patterns: tuple[str, ...] = ()
    """Files and folders to leave, by glob; stronger than `patterns`."""
    auto_ingest: bool = True
    """False: changes are seen and noted, and taken with `wqm watch sync` only."""
    recursive: bool = True
    recursive_depth: int = 10
    """Levels of sub-folders; 0 is `path` alone, -1 has no limit."""
    debounce_seconds: float = 2.0
    """The first event of a path is processed at once. Further events wait until the path is quiet for this long."""
    enabled: bool = True
    watch_type: WatchType = WatchType.PROJECT
    library_name: str | None = None
    watch_priority: int = 5
    """From 0 to 10. Priority 10 is processed first and paused last."""

    def __post_init__(self) -> None:
        for name in ("watch_id", "path", "collection"):
            value = getattr(self, name)
            require(isinstance(value, str) and value.strip() != "", name, value, "a text that is not empty")
            require(is_utf8(value), name, value, "a text in UTF-8")
        absolute = self.watch_type == WatchType.SOURCE or self.path.startswith("/")
        require(absolute, "path", self.path, "an absolute path")
        for name in ("patterns", "ignore_patterns"):
            globs = getattr(self, name)
            texts = isinstance(globs, list | tuple) and all(isinstance(each, str) and each for each in globs)
            require(texts and all(map(is_utf8, globs)), name, globs, "globs that are not empty")
            object.__setattr__(self, name, tuple(globs))  # callers may pass a list
        require_integers(self, "recursive_depth", low=UNLIMITED_DEPTH)
        known = self.watch_type in set(WatchType)
        require(known, "watch_type", self.watch_type, f"one of {', '.join(WatchType)}")
        object.__setattr__(self, "watch_type", WatchType(self.watch_type))
        seconds = self.debounce_seconds
        require(is_number(seconds) and seconds >= 0, "debounce_seconds", seconds, "a number from 0")
        require_integers(self, "watch_priority", low=0)
        within = self.watch_priority <= HIGHEST_PRIORITY
        require(within, "watch_priority", self.watch_priority, f"from 0 to {HIGHEST_PRIORITY}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BackoffConfig:
    """The delay is min(base · multiplier ^ errors, max), ± jitter."""

    base_delay_ms: int = 1_000
    max_delay_ms: int = 300_000
    """Applied before jitter, so the default delay is at most 330 s."""
    backoff_multiplier: float = 2.0
    jitter_factor: float = 0.1
    network_multiplier: float = 2.0
    """Factor after a network error, within the maximum."""

    def __post_init__(self) -> None:
        require_integers(self, "base_delay_ms", "max_delay_ms")
        in_order = self.base_delay_ms <= self.max_delay_ms
        require(in_order, "max_delay_ms", self.max_delay_ms, "at least 'base_delay_ms'")
        for name in ("backoff_multiplier", "network_multiplier"):
            value = getattr(self, name)
            require(is_number(value) and value >= 1, name, value, "a number from 1")
        jitter = self.jitter_factor
        require(is_number(jitter) and 0 <= jitter < 1, "jitter_factor", jitter, "from 0 to below 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitConfig:
    """When a breaker opens, how long it stays open, and what closes it. The defaults are those of a folder watch."""

    consecutive_errors: int = 20
    errors_per_window: int | None = 50
    """None: only consecutive errors count."""
    window_seconds: float = 3_600.0
    cooldown_seconds: float = 3_600.0
    half_open_successes: int = 3

    def __post_init__(self) -> None:
        require_integers(self, "consecutive_errors", "half_open_successes")
        if self.errors_per_window is not None:
            require_integers(self, "errors_per_window")
        require_positive(self, "window_seconds", "cooldown_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthConfig:
    """Consecutive errors at which the health of a watch changes."""

    degraded_at: int = 1
    backoff_at: int = 3
    success_reset_count: int = 5
    """Consecutive successes that make a degraded watch healthy."""
    legacy_disable_at: int | None = None
    """Opens the circuit at this number of consecutive errors instead of `circuit.consecutive_errors`."""
    backoff: BackoffConfig = field(default_factory=BackoffConfig)
    circuit: CircuitConfig = field(default_factory=CircuitConfig)

    def __post_init__(self) -> None:
        require_integers(self, "degraded_at", "backoff_at", "success_reset_count")
        require_increasing(self, "degraded_at", "backoff_at")
        if self.legacy_disable_at is not None:
            require_integers(self, "legacy_disable_at")
            require_increasing(self, "backoff_at", "legacy_disable_at")

    @property
    def effective_circuit(self) -> CircuitConfig:
        if self.legacy_disable_at is None:
            return self.circuit
        return replace(self.circuit, consecutive_errors=self.legacy_disable_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorConfig:
    """How many tasks may be queued, in total and per watch."""

    total_capacity: int = 10_000
    high_watermark: float = 0.8
    """Throttling begins at this share of `total_capacity`."""
    low_watermark: float = 0.5
    """Throttling ends when the queue uses less than this fraction of `total_capacity`."""
    min_per_watch: int = 100
    """A watch with fewer queued tasks is granted capacity even while throttling."""
    max_per_watch: int = 2_000

    def __post_init__(self) -> None:
        require_integers(self, "total_capacity", "max_per_watch")
        require_integers(self, "min_per_watch", low=0)
        require_positive(self, "low_watermark", "high_watermark")
        require_increasing(self, "low_watermark", "high_watermark")
        require(self.high_watermark <= 1, "high_watermark", self.high_watermark, "at most 1")
        in_order = self.min_per_watch <= self.max_per_watch
        require(in_order, "max_per_watch", self.max_per_watch, "at least 'min_per_watch'")


@dataclass(frozen=True, slots=True, kw_only=True)
class DegradationConfig:
    """Load thresholds and the reaction to each level. Lower bounds are inclusive."""

    queue_depth_light: int = 1_000
    queue_depth_moderate: int = 3_000
    queue_depth_severe: int = 5_000
    queue_depth_critical: int = 10_000
    throughput_target: float = 100.0
    """Tasks per second."""
    throughput_warning: float = 0.75
    """Fraction of the target throughput. Below it, the load is moderate."""
    throughput_critical: float = 0.50
    """Fraction of the target throughput. Below it, the load is severe."""
    throughput_window_seconds: float = 60.0
    """Throughput is evaluated only after the queue has been non-empty for this long."""
    memory_warning: float = 0.70
    """Share of the machine's memory at which load is moderate."""
    memory_critical: float = 0.85
    """Share of the machine's memory at which load is severe."""
    polling_interval_light: float = 1.5
    polling_interval_moderate: float = 2.0
    polling_interval_severe: float = 4.0
    polling_interval_critical: float = 10.0
    pause_priority_moderate: int = 3
    """At this level, watches of this effective priority and lower are paused."""
    pause_priority_severe: int = 5
    pause_priority_critical: int = 8
    recovery_cooldown_seconds: float = 60.0
    recovery_steps: int = 3
    """Consecutive better checks that lower the level by one."""

    def __post_init__(self) -> None:
        require_integers(self, "queue_depth_light", "recovery_steps")
        require_increasing(
            self, "queue_depth_light", "queue_depth_moderate", "queue_depth_severe", "queue_depth_critical"
        )
        require_positive(
            self, "throughput_target", "throughput_critical", "throughput_window_seconds", "memory_warning"
        )
        require_increasing(self, "throughput_critical", "throughput_warning")
        require_increasing(self, "memory_warning", "memory_critical")
        for name in ("light", "moderate", "severe", "critical"):
            value = getattr(self, f"polling_interval_{name}")
            require(is_number(value) and value >= 1, f"polling_interval_{name}", value, "a number from 1")
        require_integers(
            self, "pause_priority_moderate", "pause_priority_severe", "pause_priority_critical", low=0
        )
        cooldown = self.recovery_cooldown_seconds
        require(
            is_number(cooldown) and cooldown >= 0, "recovery_cooldown_seconds", cooldown, "a number from 0"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternConfig:
    """Number of errors from which a pattern is systematic."""

    file_repeated: int = 5
    file_type: int = 10
    time_based: int = 20
    network: int = 10
    permission: int = 3

    def __post_init__(self) -> None:
        require_integers(self, "file_repeated", "file_type", "time_based", "network", "permission")

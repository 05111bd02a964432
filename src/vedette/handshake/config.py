"""What can be tuned, with the defaults of seeds/watch-queue-handshake.md, Configuration; each field with its unit.

A value that makes no sense is refused when the record is made (E4502), so that no machine has to ask again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Any

from vedette.errors import FolderError

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
    "is_text",
    "refuse_collection",
    "refuse_unless",
]

HIGHEST_PRIORITY = 10
UNLIMITED_DEPTH = -1
"""`recursive_depth` of a watch that goes down as far as there are folders."""
_FORBIDDEN = frozenset('/\\<>:"|?*')
"""In the name of a collection: it is the name of a folder, and Qdrant's server takes none of these."""
_NAME_BYTES = 255


def refuse_unless(holds: bool, field_name: str, value: object, expected: str) -> None:
    """E4502 that names the field, what it must be and what it was."""
    if not holds:
        raise FolderError(
            "E4502",
            f"'{field_name}' cannot be {value!r}: it must be {expected}",
            fields={"field": field_name, "value": value},
        )


def _positive(record: Any, *names: str) -> None:
    for name in names:
        value = getattr(record, name)
        refuse_unless(_is_number(value) and value > 0, name, value, "a number greater than 0")


def _whole(record: Any, *names: str, low: int = 1) -> None:
    for name in names:
        value = getattr(record, name)
        whole = isinstance(value, int) and not isinstance(value, bool)
        refuse_unless(whole and value >= low, name, value, f"a whole number from {low}")


def _rising(record: Any, *names: str) -> None:
    for low, high in pairwise(names):
        smaller, larger = getattr(record, low), getattr(record, high)
        refuse_unless(smaller < larger, high, larger, f"greater than '{low}', which is {smaller!r}")


def refuse_collection(name: str) -> None:
    """E4502 unless a vector store takes a collection of this name, in a folder or on a server."""
    usable = name not in (".", "..") and name.isprintable() and _FORBIDDEN.isdisjoint(name)
    usable = usable and len(name.encode()) <= _NAME_BYTES
    signs = " ".join(sorted(_FORBIDDEN))
    refuse_unless(
        usable, "collection", name, f"printable, of at most {_NAME_BYTES} bytes, and without {signs}"
    )


def is_text(value: str) -> bool:
    """Not so a path that is not UTF-8, as Python passes it on."""
    return all(not 0xD800 <= ord(each) < 0xE000 for each in value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


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
    """Folders below `path` that are entered; -1 is any number, 0 is `path` alone."""
    debounce_seconds: float = 2.0
    """The first word of a path is followed up at once; more within so long waits until it is quiet for so long."""
    enabled: bool = True
    watch_type: WatchType = WatchType.PROJECT
    library_name: str | None = None
    watch_priority: int = 5
    """From 0 to 10; 10 goes first and is paused last."""

    def __post_init__(self) -> None:
        for name in ("watch_id", "path", "collection"):
            value = getattr(self, name)
            refuse_unless(
                isinstance(value, str) and value.strip() != "", name, value, "a text that is not empty"
            )
            refuse_unless(is_text(value), name, value, "a text in UTF-8")
        absolute = self.watch_type == WatchType.SOURCE or self.path.startswith("/")
        refuse_unless(absolute, "path", self.path, "an absolute path")
        for name in ("patterns", "ignore_patterns"):
            globs = getattr(self, name)
            texts = isinstance(globs, list | tuple) and all(isinstance(each, str) and each for each in globs)
            refuse_unless(texts and all(map(is_text, globs)), name, globs, "globs that are not empty")
            object.__setattr__(self, name, tuple(globs))  # a list is as good, and is the seed's own example
        _whole(self, "recursive_depth", low=UNLIMITED_DEPTH)
        known = self.watch_type in set(WatchType)
        refuse_unless(known, "watch_type", self.watch_type, f"one of {', '.join(WatchType)}")
        object.__setattr__(self, "watch_type", WatchType(self.watch_type))
        seconds = self.debounce_seconds
        refuse_unless(_is_number(seconds) and seconds >= 0, "debounce_seconds", seconds, "a number from 0")
        _whole(self, "watch_priority", low=0)
        within = self.watch_priority <= HIGHEST_PRIORITY
        refuse_unless(within, "watch_priority", self.watch_priority, f"from 0 to {HIGHEST_PRIORITY}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BackoffConfig:
    """min(base · multiplier ^ errors, max), ± jitter."""

    base_delay_ms: int = 1_000
    max_delay_ms: int = 300_000
    """The cap before jitter: with the default jitter a delay is at most 330 s."""
    backoff_multiplier: float = 2.0
    jitter_factor: float = 0.1
    network_multiplier: float = 2.0
    """How much longer after a network error, within the cap."""

    def __post_init__(self) -> None:
        _whole(self, "base_delay_ms", "max_delay_ms")
        in_order = self.base_delay_ms <= self.max_delay_ms
        refuse_unless(in_order, "max_delay_ms", self.max_delay_ms, "at least 'base_delay_ms'")
        for name in ("backoff_multiplier", "network_multiplier"):
            value = getattr(self, name)
            refuse_unless(_is_number(value) and value >= 1, name, value, "a number from 1")
        jitter = self.jitter_factor
        refuse_unless(_is_number(jitter) and 0 <= jitter < 1, "jitter_factor", jitter, "from 0 to below 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitConfig:
    """When a breaker opens, how long it stays so, and what closes it. The defaults are those of a watch."""

    consecutive_errors: int = 20
    errors_per_window: int | None = 50
    """None: only errors in a row count."""
    window_seconds: float = 3_600.0
    cooldown_seconds: float = 3_600.0
    half_open_successes: int = 3

    def __post_init__(self) -> None:
        _whole(self, "consecutive_errors", "half_open_successes")
        if self.errors_per_window is not None:
            _whole(self, "errors_per_window")
        _positive(self, "window_seconds", "cooldown_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthConfig:
    """From how many errors in a row a watch is what (spec/handshake.md, ruling 1)."""

    degraded_at: int = 1
    backoff_at: int = 3
    success_reset_count: int = 5
    """Successes in a row that make a degraded watch healthy."""
    legacy_disable_at: int | None = None
    """6 opens the circuit where the function in the seed says `disabled`."""
    backoff: BackoffConfig = field(default_factory=BackoffConfig)
    circuit: CircuitConfig = field(default_factory=CircuitConfig)

    def __post_init__(self) -> None:
        _whole(self, "degraded_at", "backoff_at", "success_reset_count")
        _rising(self, "degraded_at", "backoff_at")
        if self.legacy_disable_at is not None:
            _whole(self, "legacy_disable_at")
            _rising(self, "backoff_at", "legacy_disable_at")

    @property
    def disable_at(self) -> int:
        """Errors in a row that open the circuit."""
        return self.circuit.consecutive_errors if self.legacy_disable_at is None else self.legacy_disable_at


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorConfig:
    """How many tasks may wait, in all and of one watch."""

    total_capacity: int = 10_000
    high_watermark: float = 0.8
    """Throttling begins at this share of the capacity …"""
    low_watermark: float = 0.5
    """… and ends below this one."""
    min_per_watch: int = 100
    """A watch that holds less than this is served even while others are throttled."""
    max_per_watch: int = 2_000

    def __post_init__(self) -> None:
        _whole(self, "total_capacity", "max_per_watch")
        _whole(self, "min_per_watch", low=0)
        _positive(self, "low_watermark", "high_watermark")
        _rising(self, "low_watermark", "high_watermark")
        refuse_unless(self.high_watermark <= 1, "high_watermark", self.high_watermark, "at most 1")
        in_order = self.min_per_watch <= self.max_per_watch
        refuse_unless(in_order, "max_per_watch", self.max_per_watch, "at least 'min_per_watch'")


@dataclass(frozen=True, slots=True, kw_only=True)
class DegradationConfig:
    """What load is, and what is done about it. Lower bounds are inclusive (ruling 11)."""

    queue_depth_light: int = 1_000
    queue_depth_moderate: int = 3_000
    queue_depth_severe: int = 5_000
    queue_depth_critical: int = 10_000
    throughput_target: float = 100.0
    """Tasks per second."""
    throughput_warning: float = 0.75
    """Share of the target below which load is moderate."""
    throughput_critical: float = 0.50
    """Share of the target below which load is severe."""
    throughput_window_seconds: float = 60.0
    """Throughput is judged after the queue had work for so long without a pause."""
    memory_warning: float = 0.70
    """Share of the machine's memory at which load is moderate."""
    memory_critical: float = 0.85
    """Share of the machine's memory at which load is severe."""
    polling_interval_light: float = 1.5
    polling_interval_moderate: float = 2.0
    polling_interval_severe: float = 4.0
    polling_interval_critical: float = 10.0
    pause_priority_moderate: int = 3
    """Watches of this effective priority and lower are paused at that level."""
    pause_priority_severe: int = 5
    pause_priority_critical: int = 8
    recovery_cooldown_seconds: float = 60.0
    recovery_steps: int = 3
    """Better checks in a row for one level down."""

    def __post_init__(self) -> None:
        _whole(self, "queue_depth_light", "recovery_steps")
        _rising(
            self, "queue_depth_light", "queue_depth_moderate", "queue_depth_severe", "queue_depth_critical"
        )
        _positive(
            self, "throughput_target", "throughput_critical", "throughput_window_seconds", "memory_warning"
        )
        _rising(self, "throughput_critical", "throughput_warning")
        _rising(self, "memory_warning", "memory_critical")
        for name in ("light", "moderate", "severe", "critical"):
            value = getattr(self, f"polling_interval_{name}")
            refuse_unless(
                _is_number(value) and value >= 1, f"polling_interval_{name}", value, "a number from 1"
            )
        _whole(self, "pause_priority_moderate", "pause_priority_severe", "pause_priority_critical", low=0)
        cooldown = self.recovery_cooldown_seconds
        refuse_unless(
            _is_number(cooldown) and cooldown >= 0, "recovery_cooldown_seconds", cooldown, "a number from 0"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternConfig:
    """From how many errors a pattern is systematic (ruling 17)."""

    file_repeated: int = 5
    file_type: int = 10
    time_based: int = 20
    network: int = 10
    permission: int = 3

    def __post_init__(self) -> None:
        _whole(self, "file_repeated", "file_type", "time_based", "network", "permission")

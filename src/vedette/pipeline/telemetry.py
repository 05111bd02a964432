"""Counters of a worker, sent to the driver at the end of a batch.

The counts are columns of the outcome; Spark sums them as observed metrics of the query.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from vedette.subscriptions.index.matcher import MatchCounts

__all__ = ["Telemetry", "note_changes", "note_match", "note_repeated", "note_shed", "note_time", "take"]


@dataclass(slots=True)
class Telemetry:
    changes: int = 0
    """Changes processed by match, once each, including those without a match."""
    candidates: int = 0
    """Pairs of image and subscription proposed by the index."""
    faults: int = 0
    """Filters that failed to evaluate for a document."""
    absent: int = 0
    """Looked-up keys that no subscription has."""
    passed: int = 0
    """Of those, keys that passed a Bloom filter."""
    match_ms: float = 0.0
    """Milliseconds spent in match."""
    shed: int = 0
    """Skipped matches of low priority."""
    repeated: int = 0
    """Changes of retried tasks."""


_current = Telemetry()


def note_match(counts: MatchCounts) -> None:
    _current.candidates += counts.candidates
    _current.faults += counts.faults
    _current.absent += counts.absent_keys
    _current.passed += counts.false_positives


def note_changes(count: int) -> None:
    _current.changes += count


def note_shed(count: int) -> None:
    _current.shed += count


def note_repeated(count: int) -> None:
    _current.repeated += count


def note_time(milliseconds: float) -> None:
    _current.match_ms += milliseconds


def take() -> dict[str, float]:
    """Counts since the last call."""
    found = {field.name: getattr(_current, field.name) for field in fields(Telemetry)}
    for field in fields(Telemetry):
        setattr(_current, field.name, field.default)
    return found

"""What a worker counts while it works, until the end of a batch takes it along to the driver.

The counts travel as columns of the outcome, and Spark sums them up as observed metrics of the query.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from vedette.subscriptions.index.matcher import MatchCounts

__all__ = ["Telemetry", "note_changes", "note_match", "note_repeated", "note_shed", "note_time", "take"]


@dataclass(slots=True)
class Telemetry:
    changes: int = 0
    """Changes that went through match, once each, also when they concerned nobody."""
    candidates: int = 0
    """Pairs of an image and a subscription that the index proposed."""
    faults: int = 0
    """Filters that had no value for a document."""
    absent: int = 0
    """Keys asked for that no subscription has."""
    passed: int = 0
    """Of those, let through by a Bloom filter."""
    match_ms: float = 0.0
    """Time in match."""
    shed: int = 0
    """Matches of low priority that were passed over."""
    repeated: int = 0
    """Changes of a task that ran before and failed."""


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
    """What was counted since the last time."""
    found = {field.name: getattr(_current, field.name) for field in fields(Telemetry)}
    for field in fields(Telemetry):
        setattr(_current, field.name, field.default)
    return found

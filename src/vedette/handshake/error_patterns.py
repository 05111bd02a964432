"""What failures have in common: seeds/watch-queue-handshake.md, Error Pattern Detection.

Each failure that is charged to a watch counts for several keys: its file, its type, its hour of the day (UTC), and a
network or permission error by its name. Confidence is the count by its threshold, at most 1; from the threshold on a
pattern is systematic. Only a file that fails again and again is acted upon, with an exclusion; the others are shown.

`file_repeated` counts failures in a row: when the file succeeds, its row is forgotten (ruling 18).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import PurePosixPath

from vedette.handshake.config import PatternConfig
from vedette.handshake.failures import Failure, FailureKind

__all__ = ["ADVICE_BY_PATTERN", "ErrorPattern", "PatternKey", "PatternType", "add_occurrence", "pattern_keys"]

MESSAGE_CHARACTERS = 500
"""Of the last message, kept with the pattern of a file."""


class PatternType(StrEnum):
    FILE_REPEATED = "file_repeated"
    FILE_TYPE = "file_type"
    TIME_BASED = "time_based"
    NETWORK = "network"
    PERMISSION = "permission"


ADVICE_BY_PATTERN: Mapping[PatternType, str] = {
    PatternType.FILE_REPEATED: "the file is excluded until somebody lifts it: wqm watch exclusions",
    PatternType.FILE_TYPE: "look at what files of this type have in common, or ignore them",
    PatternType.TIME_BASED: "look at what runs at this hour",
    PatternType.NETWORK: "backoff is doubled; look at the network file system or server",
    PatternType.PERMISSION: "give the daemon's user the right to read these files",
}


@dataclass(frozen=True, slots=True, order=True)
class PatternKey:
    type: PatternType
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorPattern:
    key: PatternKey
    occurrence_count: int
    first_seen_at: datetime
    last_seen_at: datetime
    is_systematic: bool
    confidence_score: float
    """From 0 to 1."""
    last_message: str | None = None
    """Of a file only."""


def pattern_keys(failure: Failure) -> tuple[PatternKey, ...]:
    """Everything that this failure counts for."""
    keys = [PatternKey(PatternType.TIME_BASED, f"hour_{failure.at.astimezone(UTC).hour:02}")]
    if failure.path:  # a source has no files
        suffix = PurePosixPath(failure.path).suffix.lower()
        keys = [
            PatternKey(PatternType.FILE_REPEATED, failure.path),
            PatternKey(PatternType.FILE_TYPE, suffix or "no_extension"),
            *keys,
        ]
    if failure.kind is FailureKind.NETWORK:
        keys.append(PatternKey(PatternType.NETWORK, failure.error_type))
    elif failure.kind is FailureKind.PERMISSION:
        keys.append(PatternKey(PatternType.PERMISSION, failure.error_type))
    return tuple(keys)


def add_occurrence(
    pattern: ErrorPattern | None, key: PatternKey, failure: Failure, config: PatternConfig
) -> ErrorPattern:
    """The pattern with one more occurrence; `pattern` is None for the first."""
    count = 1 if pattern is None else pattern.occurrence_count + 1
    threshold = getattr(config, key.type)
    is_file = key.type is PatternType.FILE_REPEATED
    first = ErrorPattern(
        key=key,
        occurrence_count=count,
        first_seen_at=failure.at,
        last_seen_at=failure.at,
        is_systematic=count >= threshold,
        confidence_score=min(1.0, count / threshold),
        last_message=failure.message[:MESSAGE_CHARACTERS] if is_file else None,
    )
    return first if pattern is None else replace(first, first_seen_at=pattern.first_seen_at)

"""Error patterns: properties that several failures share.

Each failure that is charged to a watch counts for several patterns: its file, its file type, its hour of the day (UTC),
and the error type of a network or permission error. The confidence is the count divided by the threshold, at most 1;
from the threshold on, the pattern is systematic. A systematic file pattern excludes the file; the others are only
shown.

`file_repeated` counts consecutive failures: a success of the file deletes its pattern
(docs/design/decisions/0056-handshake-error-patterns.md).
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

MAX_MESSAGE_CHARACTERS = 500
"""Length of the last message that the pattern of a file keeps."""


class PatternType(StrEnum):
    FILE_REPEATED = "file_repeated"
    FILE_TYPE = "file_type"
    TIME_BASED = "time_based"
    NETWORK = "network"
    PERMISSION = "permission"


ADVICE_BY_PATTERN: Mapping[PatternType, str] = {
    PatternType.FILE_REPEATED: "the file is excluded; `wqm watch exclusions` lists and removes exclusions",
    PatternType.FILE_TYPE: "check what files of this type have in common, or ignore the type",
    PatternType.TIME_BASED: "check what else runs at this hour",
    PatternType.NETWORK: "backoff is doubled; check the network file system or server",
    PatternType.PERMISSION: "allow the daemon's user to read these files",
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
    """Only for patterns of a file."""


def pattern_keys(failure: Failure) -> tuple[PatternKey, ...]:
    """Return all patterns that the failure counts for."""
    keys = [PatternKey(PatternType.TIME_BASED, f"hour_{failure.at.astimezone(UTC).hour:02}")]
    if failure.path:  # failures of a source have no path
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
    """Return the pattern with one more occurrence. `pattern` is None for the first."""
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
        last_message=failure.message[:MAX_MESSAGE_CHARACTERS] if is_file else None,
    )
    return first if pattern is None else replace(first, first_seen_at=pattern.first_seen_at)

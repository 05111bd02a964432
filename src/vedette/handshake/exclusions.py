"""Exclusions: paths of a folder watch that are not processed.

An exclusion covers one file, a glob over the whole path, or a directory with everything below it (`/sub` does not cover
`/subway`). It is permanent or has an expiry date; a record with neither or both is rejected.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import PurePosixPath

from vedette.handshake.error_patterns import ErrorPattern, PatternType
from vedette.handshake.validation import is_utf8, require

__all__ = ["Exclusion", "ExclusionType", "exclusion_from_pattern", "find_exclusion"]

MAX_REASON_MESSAGE_CHARACTERS = 100
"""Length of the last message in the reason of an automatic exclusion."""


class ExclusionType(StrEnum):
    FILE = "file"
    PATTERN = "pattern"
    DIRECTORY = "directory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    type: ExclusionType
    value: str
    """A path, or a glob over paths."""
    reason: str
    error_count: int
    """Errors that caused the exclusion; 0 if a user created it."""
    created_at: datetime
    expires_at: datetime | None = None
    is_permanent: bool = False

    def __post_init__(self) -> None:
        usable = bool(self.value.strip()) and is_utf8(self.value)
        require(usable, "exclusion", self.value, "a path or a glob, in UTF-8")
        require(bool(self.reason.strip()), "reason", self.reason, "a text that is not empty")
        ends = self.expires_at is not None
        require(
            ends != self.is_permanent,
            "expires_at",
            self.expires_at,
            "set unless the exclusion is permanent",
        )

    def is_active(self, now: datetime) -> bool:
        return self.expires_at is None or now < self.expires_at

    def covers(self, path: str) -> bool:
        match self.type:
            case ExclusionType.FILE:
                return path == self.value
            case ExclusionType.PATTERN:
                return fnmatch.fnmatchcase(path, self.value)
            case ExclusionType.DIRECTORY:
                return PurePosixPath(path).is_relative_to(self.value)


def find_exclusion(exclusions: Iterable[Exclusion], path: str, now: datetime) -> Exclusion | None:
    """Return the first active exclusion that covers the path."""
    return next((each for each in exclusions if each.is_active(now) and each.covers(path)), None)


def exclusion_from_pattern(pattern: ErrorPattern, now: datetime) -> Exclusion | None:
    """Return the exclusion for a systematic file pattern, or None for any other pattern."""
    if not pattern.is_systematic or pattern.key.type is not PatternType.FILE_REPEATED:
        return None
    count, message = pattern.occurrence_count, pattern.last_message or ""
    return Exclusion(
        type=ExclusionType.FILE,
        value=pattern.key.value,
        reason=f"Systematic failure: {count} errors - {message[:MAX_REASON_MESSAGE_CHARACTERS]}",
        error_count=count,
        created_at=now,
        is_permanent=True,
    )

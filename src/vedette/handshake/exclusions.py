"""What of a watch is left alone: seeds/watch-queue-handshake.md, Exclusion Management.

By file (this very path), by pattern (a glob over the whole path), by directory (all below it; `/sub` is not `/subway`).
An exclusion is permanent or has an end; one with neither is refused, since it would be permanent without saying so.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import PurePosixPath

from vedette.handshake.config import is_text, refuse_unless
from vedette.handshake.error_patterns import ErrorPattern, PatternType

__all__ = ["Exclusion", "ExclusionType", "exclusion_from_pattern", "find_exclusion"]

REASON_CHARACTERS = 100
"""Of the last message, in the reason of an automatic exclusion."""


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
    """Errors that led to it; 0 when a person made it."""
    created_at: datetime
    expires_at: datetime | None = None
    is_permanent: bool = False

    def __post_init__(self) -> None:
        usable = bool(self.value.strip()) and is_text(self.value)
        refuse_unless(usable, "exclusion", self.value, "a path or a glob, in UTF-8")
        refuse_unless(bool(self.reason.strip()), "reason", self.reason, "a text that is not empty")
        ends = self.expires_at is not None
        refuse_unless(
            ends != self.is_permanent,
            "expires_at",
            self.expires_at,
            "set, or the exclusion permanent, not both",
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
    """The first that is active and covers the path."""
    return next((each for each in exclusions if each.is_active(now) and each.covers(path)), None)


def exclusion_from_pattern(pattern: ErrorPattern, now: datetime) -> Exclusion | None:
    """What a systematic pattern leads to: only a file that fails again and again is excluded (ruling 17)."""
    if not pattern.is_systematic or pattern.key.type is not PatternType.FILE_REPEATED:
        return None
    count, message = pattern.occurrence_count, pattern.last_message or ""
    return Exclusion(
        type=ExclusionType.FILE,
        value=pattern.key.value,
        reason=f"Systematic failure: {count} errors - {message[:REASON_CHARACTERS]}",
        error_count=count,
        created_at=now,
        is_permanent=True,
    )

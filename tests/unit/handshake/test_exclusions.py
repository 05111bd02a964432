"""Which paths an exclusion covers, and until when."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.support.handshake_records import NOW, failure
from vedette.errors import FolderError
from vedette.handshake import config as configs
from vedette.handshake.error_patterns import (
    ErrorPattern,
    PatternType,
    add_occurrence,
    pattern_keys,
)
from vedette.handshake.exclusions import Exclusion, ExclusionType, exclusion_from_pattern, find_exclusion
from vedette.handshake.failures import FailureKind


def repeated(times: int, type: PatternType, kind: FailureKind = FailureKind.DATA) -> ErrorPattern:
    pattern: ErrorPattern | None = None
    for _ in range(times):
        (key,) = (key for key in pattern_keys(failure(kind=kind)) if key.type is type)
        pattern = add_occurrence(pattern, key, failure(kind=kind), configs.PatternConfig())
    assert pattern is not None
    return pattern


def test_repeated_failures_exclude_a_file_permanently() -> None:
    made = exclusion_from_pattern(repeated(5, PatternType.FILE_REPEATED), NOW)
    assert made is not None
    assert (made.type, made.value, made.is_permanent, made.error_count) == ("file", "/w/a.PDF", True, 5)
    assert made.reason.startswith("Systematic failure: 5 errors - damaged")
    assert len(made.reason) < 140


@pytest.mark.parametrize(
    ("type", "value", "covered", "not_covered"),
    [
        ("file", "/w/a.txt", ["/w/a.txt"], ["/w/a.txt2", "/w/sub/a.txt"]),
        (
            "pattern",
            "*.corrupted",
            ["/w/x.corrupted", "/w/sub/y.corrupted"],
            ["/w/x.corrupted2", "/w/x.CORRUPTED"],
        ),
        ("directory", "/w/sub", ["/w/sub", "/w/sub/x", "/w/sub/y/z"], ["/w/subway/x", "/w/x"]),
    ],
)
def test_covered_paths(type: str, value: str, covered: list[str], not_covered: list[str]) -> None:
    exclusion = Exclusion(
        type=ExclusionType(type),
        value=value,
        reason="by hand",
        error_count=0,
        created_at=NOW,
        is_permanent=True,
    )
    assert [path for path in covered + not_covered if find_exclusion([exclusion], path, NOW)] == covered


def test_exclusion_expires() -> None:
    end = NOW + timedelta(hours=1)
    exclusion = Exclusion(
        type=ExclusionType.FILE, value="/w/a", reason="for now", error_count=0, created_at=NOW, expires_at=end
    )
    assert find_exclusion([exclusion], "/w/a", end - timedelta(milliseconds=1)) is exclusion
    assert find_exclusion([exclusion], "/w/a", end) is None


@pytest.mark.parametrize("permanent", [False, True])
def test_exclusion_needs_exactly_one_of_permanent_and_expiry(permanent: bool) -> None:
    end = NOW if permanent else None
    with pytest.raises(FolderError, match="E4502"):
        Exclusion(
            type=ExclusionType.FILE,
            value="/a",
            reason="r",
            error_count=0,
            created_at=NOW,
            expires_at=end,
            is_permanent=permanent,
        )

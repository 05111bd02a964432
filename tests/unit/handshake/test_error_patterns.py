"""Error patterns and their thresholds."""

from __future__ import annotations

import pytest

from tests.support.handshake_records import NOW, failure
from vedette.handshake import config as configs
from vedette.handshake.error_patterns import (
    ErrorPattern,
    PatternKey,
    PatternType,
    add_occurrence,
    pattern_keys,
)
from vedette.handshake.exclusions import exclusion_from_pattern
from vedette.handshake.failures import FailureKind


def repeated(times: int, type: PatternType, kind: FailureKind = FailureKind.DATA) -> ErrorPattern:
    pattern: ErrorPattern | None = None
    for _ in range(times):
        (key,) = (key for key in pattern_keys(failure(kind=kind)) if key.type is type)
        pattern = add_occurrence(pattern, key, failure(kind=kind), configs.PatternConfig())
    assert pattern is not None
    return pattern


@pytest.mark.parametrize(
    ("type", "kind", "threshold"),
    [
        (PatternType.FILE_REPEATED, FailureKind.DATA, 5),
        (PatternType.FILE_TYPE, FailureKind.DATA, 10),
        (PatternType.TIME_BASED, FailureKind.DATA, 20),
        (PatternType.NETWORK, FailureKind.NETWORK, 10),
        (PatternType.PERMISSION, FailureKind.PERMISSION, 3),
    ],
)
def test_pattern_thresholds(type: PatternType, kind: FailureKind, threshold: int) -> None:
    before, at, after = (repeated(threshold + more, type, kind) for more in (-1, 0, 1))
    assert [each.is_systematic for each in (before, at, after)] == [False, True, True]
    assert before.confidence_score == pytest.approx((threshold - 1) / threshold)
    assert at.confidence_score == after.confidence_score == 1.0
    acted = exclusion_from_pattern(at, NOW)
    assert (acted is not None) == (type is PatternType.FILE_REPEATED)


def test_patterns_of_a_failure() -> None:
    assert pattern_keys(failure("/w/x.tar.GZ")) == (
        PatternKey(PatternType.FILE_REPEATED, "/w/x.tar.GZ"),
        PatternKey(PatternType.FILE_TYPE, ".gz"),
        PatternKey(PatternType.TIME_BASED, "hour_12"),
    )
    assert pattern_keys(failure("/w/Makefile"))[1].value == "no_extension"

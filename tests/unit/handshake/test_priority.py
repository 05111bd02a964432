"""Effective priority of a folder watch, and the rotation of claims."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest

from tests.support.handshake_records import NOW, failed, succeeded
from vedette.handshake.health import (
    WatchHealth,
)
from vedette.handshake.priority import (
    HIGH_FIRST_CLAIMS,
    LOW_FIRST_CLAIMS,
    PriorityRotation,
    effective_priority,
)


@pytest.mark.parametrize(
    ("priority", "errors", "last_success_minutes", "effective"),
    [
        (5, 0, None, 5),
        (5, 0, 59, 6),
        (5, 0, 60, 5),
        (10, 0, 1, 10),
        (5, 1, 1, 4),
        (5, 3, 1, 3),
        (0, 1, None, 0),
        (1, 3, None, 0),
        (10, 20, 1, 0),
    ],
)
def test_effective_priority(
    priority: int, errors: int, last_success_minutes: int | None, effective: int
) -> None:
    health = WatchHealth()
    if last_success_minutes is not None:
        health = succeeded(health, now=NOW - timedelta(minutes=last_success_minutes))
    assert effective_priority(priority, failed(health, errors), NOW) == effective


def test_low_first_claims_are_spread_over_the_rotation() -> None:
    rotation, low_first = PriorityRotation(), []
    for _ in range(HIGH_FIRST_CLAIMS + LOW_FIRST_CLAIMS):
        low_first.append(rotation.low_first())
        rotation = rotation.next()
    assert sum(low_first) == LOW_FIRST_CLAIMS
    assert not any(first and second for first, second in pairwise(low_first))

"""Backoff delays and retries of file tasks."""

from __future__ import annotations

from random import Random

import pytest

from tests.support.handshake_records import failure
from vedette.handshake.config import BackoffConfig
from vedette.handshake.failures import FailureKind
from vedette.handshake.retry import backoff_delay, backoff_milliseconds, decide_retry


@pytest.mark.parametrize(
    ("errors", "seconds"),
    [(0, 0), (1, 2), (2, 4), (3, 8), (4, 16), (5, 32), (6, 64), (7, 128), (8, 256), (9, 300), (5_000, 300)],
)
def test_backoff_sequence(errors: int, seconds: int) -> None:
    assert backoff_milliseconds(errors, BackoffConfig()) == seconds * 1000


@pytest.mark.parametrize(("errors", "seconds"), [(1, 4), (6, 128), (8, 300), (9, 300)])
def test_network_error_doubles_the_delay_within_the_maximum(errors: int, seconds: int) -> None:
    assert backoff_milliseconds(errors, BackoffConfig(), network=True) == seconds * 1000


def test_jitter_is_symmetric_and_may_exceed_the_maximum() -> None:
    rng = Random(7)
    seconds = [backoff_delay(50, BackoffConfig(), rng).total_seconds() for _ in range(500)]
    assert 270 <= min(seconds) < 280
    assert 320 < max(seconds) <= 330


def test_task_is_delivered_five_times_unless_the_sink_failed() -> None:
    def retries(kind: FailureKind) -> list[bool]:
        return [
            decide_retry(failure(kind=kind), count, BackoffConfig(), Random(1)).retry for count in range(1, 8)
        ]

    assert retries(FailureKind.RESOURCE) == [True] * 4 + [False] * 3
    assert retries(FailureKind.SINK) == [True] * 7
    assert retries(FailureKind.DATA) == [False] * 7

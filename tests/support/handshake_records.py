"""Records of the handshake for tests: a watch after errors and successes, and a failure."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random

from vedette.handshake.config import HealthConfig
from vedette.handshake.failures import Failure, FailureKind
from vedette.handshake.health import WatchHealth, record_error, record_success

__all__ = ["CONFIG", "NOW", "failed", "failure", "succeeded"]

NOW = datetime(2024, 1, 1, 12, tzinfo=UTC)
CONFIG = HealthConfig()


def failed(
    health: WatchHealth, times: int = 1, now: datetime = NOW, config: HealthConfig = CONFIG
) -> WatchHealth:
    """Return the health after this number of errors."""
    for _ in range(times):
        health = record_error(health, now, "it broke", config, Random(1))
        health.validate(config)
    return health


def succeeded(health: WatchHealth, times: int = 1, now: datetime = NOW) -> WatchHealth:
    """Return the health after this number of successes."""
    for _ in range(times):
        health = record_success(health, now, CONFIG)
        health.validate(CONFIG)
    return health


def failure(path: str = "/w/a.PDF", kind: FailureKind = FailureKind.DATA) -> Failure:
    return Failure(path=path, error_type="E4512", message="damaged " * 100, at=NOW, kind=kind)

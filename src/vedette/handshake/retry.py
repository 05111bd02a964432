"""Backoff delays, and the decision whether a failed file task is retried.

The delay doubles with each consecutive error up to a maximum: 2, 4, 8, 16, 32, 64, 128, 256, 300 s. Symmetric jitter is
applied after the maximum, so the longest delay is between 270 and 330 s
(docs/design/decisions/0052-handshake-backoff.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from random import Random

from vedette.handshake.config import BackoffConfig
from vedette.handshake.failures import Failure, FailureKind

__all__ = ["MAX_REDELIVERIES", "RetryDecision", "backoff_delay", "backoff_milliseconds", "decide_retry"]

MAX_REDELIVERIES = 4
"""A file task is delivered at most five times. The fifth consecutive failure excludes the file."""


def backoff_milliseconds(errors: int, config: BackoffConfig, *, network: bool = False) -> float:
    """Return the delay after `errors` consecutive errors, before jitter. Zero errors mean no delay."""
    if errors <= 0:
        return 0.0
    try:
        grown = config.base_delay_ms * config.backoff_multiplier**errors
    except OverflowError:
        grown = float(config.max_delay_ms)
    return min(grown * (config.network_multiplier if network else 1.0), float(config.max_delay_ms))


def backoff_delay(errors: int, config: BackoffConfig, rng: Random, *, network: bool = False) -> timedelta:
    """Return the delay with symmetric jitter of at most `jitter_factor`, in whole milliseconds."""
    delay = backoff_milliseconds(errors, config, network=network)
    factor = 1.0 + config.jitter_factor * (2.0 * rng.random() - 1.0)
    return timedelta(milliseconds=round(delay * factor))


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryDecision:
    retry: bool
    delay: timedelta
    """Zero if the task is not retried."""
    counts_attempt: bool
    reason: str


def decide_retry(failure: Failure, failed_attempts: int, config: BackoffConfig, rng: Random) -> RetryDecision:
    """Decide whether a failed file task is retried. `failed_attempts` includes this failure."""
    policy = failure.policy
    if not policy.retry:
        return RetryDecision(
            retry=False,
            delay=timedelta(0),
            counts_attempt=policy.counts_attempt,
            reason=f"{failure.kind}: a retry would not help",
        )
    if policy.counts_attempt and failed_attempts > MAX_REDELIVERIES:
        return RetryDecision(
            retry=False,
            delay=timedelta(0),
            counts_attempt=True,
            reason=f"failed {failed_attempts} times",
        )
    network = failure.kind is FailureKind.NETWORK
    delay = backoff_delay(max(1, failed_attempts), config, rng, network=network)
    return RetryDecision(retry=True, delay=delay, counts_attempt=policy.counts_attempt, reason=failure.kind)

"""What a failure is, whom it is charged to, and whether trying again makes sense: decisions as values.

A file that vanished is no error. A sink that is down is nobody's fault who only watches. A file whose content cannot be
read will not get better by itself. The rest is tried again with the delays of `vedette.handshake.retry`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from random import Random

from vedette.handshake.config import BackoffConfig
from vedette.handshake.retry import backoff_delay

__all__ = [
    "FAILURE_POLICIES",
    "MAX_REDELIVERIES",
    "Failure",
    "FailureKind",
    "FailurePolicy",
    "FaultDomain",
    "RetryDecision",
    "classify_failure",
    "decide_retry",
]

MAX_REDELIVERIES = 4
"""A file task is handed out at most five times; the fifth failure in a row excludes the file (surface.md)."""


class FailureKind(StrEnum):
    GONE = "gone"
    """The file is not there any more: nothing to do."""
    PERMISSION = "permission"
    NETWORK = "network"
    RESOURCE = "resource"
    """Busy, locked, out of memory: later it may work."""
    DATA = "data"
    """Its content cannot be used: damaged, encrypted, no text."""
    SINK = "sink"
    """Qdrant or the disk: not the file's fault."""
    UNKNOWN = "unknown"


class FaultDomain(StrEnum):
    NONE = "nobody"
    WATCH = "watch"
    SINK = "sink"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePolicy:
    fault_domain: FaultDomain
    retry: bool
    counts_attempt: bool
    """False: the task waits and its attempts stay as they are."""


K = FailureKind

FAILURE_POLICIES: Mapping[FailureKind, FailurePolicy] = {
    K.GONE: FailurePolicy(fault_domain=FaultDomain.NONE, retry=False, counts_attempt=False),
    K.PERMISSION: FailurePolicy(fault_domain=FaultDomain.WATCH, retry=True, counts_attempt=True),
    K.NETWORK: FailurePolicy(fault_domain=FaultDomain.WATCH, retry=True, counts_attempt=True),
    K.RESOURCE: FailurePolicy(fault_domain=FaultDomain.WATCH, retry=True, counts_attempt=True),
    K.DATA: FailurePolicy(fault_domain=FaultDomain.WATCH, retry=False, counts_attempt=True),
    K.SINK: FailurePolicy(fault_domain=FaultDomain.SINK, retry=True, counts_attempt=False),
    K.UNKNOWN: FailurePolicy(fault_domain=FaultDomain.WATCH, retry=True, counts_attempt=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One file that could not be processed."""

    path: str
    error_type: str
    """The name of the exception or the code of the error."""
    message: str
    at: datetime
    kind: FailureKind

    @property
    def policy(self) -> FailurePolicy:
        return FAILURE_POLICIES[self.kind]


_MESSAGE_FRAGMENTS: tuple[tuple[FailureKind, tuple[str, ...]], ...] = (
    (K.GONE, ("no such file", "not found", "filenotfounderror", "notadirectoryerror")),
    (K.PERMISSION, ("permission", "access denied", "access is denied", "operation not permitted")),
    (K.NETWORK, ("network", "timeout", "timed out", "connection", "unreachable")),
    (K.DATA, ("corrupt", "damaged", "invalid format", "unsupported", "encrypted", "is a directory")),
    (K.RESOURCE, ("busy", "locked", "temporarily", "too many open files", "out of memory", "memoryerror")),
)
"""Read from top to bottom, the first that is found wins."""


def classify_failure(error_type: str, message: str) -> FailureKind:
    """The kind of a failure that does not say it: by its words. Whoever knows more says so in `Failure.kind`."""
    text = f"{error_type} {message}".lower()
    return next(
        (kind for kind, words in _MESSAGE_FRAGMENTS if any(word in text for word in words)), K.UNKNOWN
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryDecision:
    retry: bool
    delay: timedelta
    """Zero when it is not tried again."""
    counts_attempt: bool
    reason: str


def decide_retry(
    failure: Failure, failed_attempts: int, config: BackoffConfig, chance: Random
) -> RetryDecision:
    """`failed_attempts`: of this task, this one included."""
    policy = failure.policy
    if not policy.retry:
        return RetryDecision(
            retry=False,
            delay=timedelta(0),
            counts_attempt=policy.counts_attempt,
            reason=f"{failure.kind}: trying again would not help",
        )
    if policy.counts_attempt and failed_attempts > MAX_REDELIVERIES:
        return RetryDecision(
            retry=False,
            delay=timedelta(0),
            counts_attempt=True,
            reason=f"failed {failed_attempts} times",
        )
    network = failure.kind is K.NETWORK
    delay = backoff_delay(max(1, failed_attempts), config, chance, network=network)
    return RetryDecision(retry=True, delay=delay, counts_attempt=policy.counts_attempt, reason=failure.kind)

"""Kinds of failures, the fault domain of each, and whether a retry can help.

A file that disappeared is not an error. An unavailable sink does not count against any folder watch. A file whose
content cannot be used is not retried. Everything else is retried with the delays of `vedette.handshake.retry`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

__all__ = [
    "FAILURE_POLICIES",
    "Failure",
    "FailureKind",
    "FailurePolicy",
    "FaultDomain",
    "classify_failure",
]


class FailureKind(StrEnum):
    GONE = "gone"
    """The file no longer exists; there is nothing to do."""
    PERMISSION = "permission"
    NETWORK = "network"
    RESOURCE = "resource"
    """Busy, locked or out of memory; a retry may succeed."""
    DATA = "data"
    """The content cannot be used: damaged, encrypted or not text."""
    SINK = "sink"
    """The vector store, the embedder or the disk failed; the file is not at fault."""
    UNKNOWN = "unknown"


class FaultDomain(StrEnum):
    """The part that a failure counts against."""

    NONE = "nobody"
    WATCH = "watch"
    SINK = "sink"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePolicy:
    fault_domain: FaultDomain
    retry: bool
    counts_attempt: bool
    """False: the task is delayed without counting an attempt."""


FAILURE_POLICIES: Mapping[FailureKind, FailurePolicy] = {
    FailureKind.GONE: FailurePolicy(fault_domain=FaultDomain.NONE, retry=False, counts_attempt=False),
    FailureKind.PERMISSION: FailurePolicy(fault_domain=FaultDomain.WATCH, retry=True, counts_attempt=True),
    FailureKind.NETWORK: FailurePolicy(fault_domain=FaultDomain.WATCH, retry=True, counts_attempt=True),
    FailureKind.RESOURCE: FailurePolicy(fault_domain=FaultDomain.WATCH, retry=True, counts_attempt=True),
    FailureKind.DATA: FailurePolicy(fault_domain=FaultDomain.WATCH, retry=False, counts_attempt=True),
    FailureKind.SINK: FailurePolicy(fault_domain=FaultDomain.SINK, retry=True, counts_attempt=False),
    FailureKind.UNKNOWN: FailurePolicy(fault_domain=FaultDomain.WATCH, retry=True, counts_attempt=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A file that could not be processed."""

    path: str
    error_type: str
    """The name of the exception, or the error code."""
    message: str
    at: datetime
    kind: FailureKind

    @property
    def policy(self) -> FailurePolicy:
        return FAILURE_POLICIES[self.kind]


_MESSAGE_FRAGMENTS: tuple[tuple[FailureKind, tuple[str, ...]], ...] = (
    (FailureKind.GONE, ("no such file", "not found", "filenotfounderror", "notadirectoryerror")),
    (FailureKind.PERMISSION, ("permission", "access denied", "access is denied", "operation not permitted")),
    (FailureKind.NETWORK, ("network", "timeout", "timed out", "connection", "unreachable")),
    (
        FailureKind.DATA,
        ("corrupt", "damaged", "invalid format", "unsupported", "encrypted", "is a directory"),
    ),
    (
        FailureKind.RESOURCE,
        ("busy", "locked", "temporarily", "too many open files", "out of memory", "memoryerror"),
    ),
)
"""Fragments of error messages. The first kind with a matching fragment applies."""


def classify_failure(error_type: str, message: str) -> FailureKind:
    """Classify a failure by fragments of its message. A caller that knows the kind sets `Failure.kind` itself."""
    text = f"{error_type} {message}".lower()
    return next(
        (kind for kind, words in _MESSAGE_FRAGMENTS if any(word in text for word in words)),
        FailureKind.UNKNOWN,
    )

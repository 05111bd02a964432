"""All cases, in the order of the table."""

from __future__ import annotations

from benchmarks.case import Case
from benchmarks.cases import (
    committing,
    inserting,
    loading,
    notifying,
    queueing,
    reading,
    registering,
    serving,
    stating,
    watching,
)

__all__ = ["CASES"]

CASES: tuple[Case, ...] = (
    *inserting.CASES,
    *committing.CASES,
    *loading.CASES,
    *reading.CASES,
    *stating.CASES,
    *watching.CASES,
    *registering.CASES,
    *notifying.CASES,
    *queueing.CASES,
    *serving.CASES,
)

"""All cases, in the order of the table."""

from __future__ import annotations

from benchmarks.case import Case
from benchmarks.cases import committing, inserting, loading, reading, stating

__all__ = ["CASES"]

CASES: tuple[Case, ...] = (
    *inserting.CASES,
    *committing.CASES,
    *loading.CASES,
    *reading.CASES,
    *stating.CASES,
)

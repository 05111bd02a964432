"""What a document filter reads, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from vedette.values import Value

__all__ = ["FilterInput", "FilterOutcome", "FilterRequest", "MeteredInput", "StepLimitExceeded"]


class FilterRequest(NamedTuple):
    """The subscriber's identity and the time of subscribing.

    Both are fixed when the subscription starts, so that a filter always gives the same answer for the same change.
    """

    auth: Mapping[str, Value] | None = None
    """`userId`, `roles` and `claims`; None for a client without a token."""
    time: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterInput:
    """The values of a filter's variables for one change, in canonical form (`values.py`).

    docs/reference/filters.md describes the variables.
    """

    doc: Mapping[str, Value] | None
    """The document to test: the new version, or the old version to find out whether the document leaves the result."""
    id: str = ""
    collection: str = ""
    op: str = ""
    """`create`, `update` or `delete`."""
    before: Mapping[str, Value] | None = None
    request: FilterRequest = FilterRequest()


class FilterOutcome(StrEnum):
    """The result of a filter for one change. `FAILED` counts as no match and is also counted as an error."""

    MATCH = "match"
    NO_MATCH = "no_match"
    FAILED = "failed"


class StepLimitExceeded(Exception):
    """One evaluation used up its steps. It is not an `EvaluationError`, so `&&` and `||` cannot absorb it."""


class MeteredInput:
    """A `FilterInput` with the number of steps that its evaluation may still use."""

    __slots__ = ("before", "collection", "doc", "id", "op", "request", "steps")

    def __init__(self, values: FilterInput, steps: int) -> None:
        self.doc = values.doc
        self.id = values.id
        self.collection = values.collection
        self.op = values.op
        self.before = values.before
        self.request = values.request
        self.steps = steps

    def charge(self, steps: int) -> None:
        """Subtract `steps`; raise StepLimitExceeded if fewer were left."""
        self.steps -= steps
        if self.steps < 0:
            raise StepLimitExceeded

"""A query whose source process was too slow is started again, and no other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from pyspark.sql.streaming.readwriter import DataStreamWriter

from vedette.pipeline.queries.query_start import MAX_STARTS, start_query

TOO_SLOW = "[STREAM_FAILED] Query terminated with exception: Python worker failed to connect back."


@dataclass
class Query:
    """A query that initializes for some rounds and then runs, or ends with an error."""

    error: str | None = None
    rounds: int = 2
    name: str = "vedette test"

    @property
    def isActive(self) -> bool:
        return self.error is None or self.rounds > 0

    @property
    def status(self) -> dict[str, Any]:
        self.rounds -= 1
        return {"message": "Initializing sources" if self.rounds >= 0 else "Waiting for data to arrive"}

    def exception(self) -> str | None:
        return self.error


@dataclass
class Writer:
    queries: list[Query]
    started: list[Query] = field(default_factory=list)

    def start(self) -> Query:
        self.started.append(self.queries[len(self.started)])
        return self.started[-1]


@pytest.mark.parametrize(
    ("errors", "starts"),
    [
        ([None], 1),
        ([TOO_SLOW, TOO_SLOW, None], 3),
        (["another failure", None], 1),
        ([TOO_SLOW] * (MAX_STARTS + 1), MAX_STARTS),
    ],
)
def test_starts(errors: list[str | None], starts: int) -> None:
    writer = Writer([Query(error) for error in errors])
    query = cast(Query, start_query(cast(DataStreamWriter, writer)))
    assert len(writer.started) == starts
    assert query is writer.started[-1]

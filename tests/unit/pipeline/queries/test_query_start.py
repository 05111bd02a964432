"""A query whose source process did not connect in time is started again; another failure is not retried."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from vedette.pipeline.queries.query_start import MAX_STARTS, start_query

NOT_CONNECTED = "[STREAM_FAILED] Query terminated with exception: Python worker failed to connect back."


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

    def queryName(self, name: str) -> Writer:
        assert name == "vedette-test"
        return self

    def start(self) -> Query:
        self.started.append(self.queries[len(self.started)])
        return self.started[-1]


@dataclass
class Context:
    """Records the scheduler pools that are set for this thread."""

    pools: list[str | None] = field(default_factory=list)

    def setLocalProperty(self, key: str, value: str | None) -> None:
        assert key == "spark.scheduler.pool"
        self.pools.append(value)


@pytest.mark.parametrize(
    ("errors", "starts"),
    [
        ([None], 1),
        ([NOT_CONNECTED, NOT_CONNECTED, None], 3),
        (["another failure", None], 1),
        ([NOT_CONNECTED] * (MAX_STARTS + 1), MAX_STARTS),
    ],
)
def test_starts(errors: list[str | None], starts: int) -> None:
    writer = Writer([Query(error) for error in errors])
    context = Context()
    spark = cast(SparkSession, SimpleNamespace(sparkContext=context))
    query = cast(Query, start_query(spark, "vedette-test", cast(DataStreamWriter, writer)))
    assert context.pools == ["vedette-test", None]
    assert len(writer.started) == starts
    assert query is writer.started[-1]

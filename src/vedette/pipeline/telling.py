"""The journal as Spark reads it on the hot path: the reader of a range sends it through the stages by itself.

Its rows are what came of it, a few counts. With the stages in a `mapInArrow` behind the reader every task needed two
Python workers, and every change went from the one through Java to the other (docs/design/pipeline.md has the figures).
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from vedette.pipeline.context import PipelineContext
from vedette.pipeline.datasource import JournalSource, JournalStream
from vedette.pipeline.schema import OUTCOME, spark_schema
from vedette.pipeline.topology import hot_path

__all__ = ["TellingStream", "telling_source"]


class TellingStream(JournalStream):
    def __init__(self, options: dict[str, str], context: PipelineContext) -> None:
        super().__init__(options)
        self._context = context

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return hot_path(self._context)(super().read(partition))


def telling_source(context: PipelineContext) -> type[JournalSource]:
    """A source with its context inside: options are shown in plans, and it holds a secret."""

    class ToldJournal(JournalSource):
        @classmethod
        def name(cls) -> str:
            return "vedette_told"

        def schema(self) -> str:
            return spark_schema(OUTCOME)

        def streamReader(self, schema: StructType) -> JournalStream:  # noqa: ARG002 - Spark's name
            return TellingStream(dict(self.options), context)

    return ToldJournal

"""The journal as Spark reads it on the hot path: the reader of a range sends it through the stages by itself.

Its one row is what came of it, a few counts. With the stages in a `mapInArrow` behind the reader every task needed two
Python workers, and every change went from the one through Java to the other (docs/design/pipeline.md has the figures).
The counts are one text: Spark plans and checks every column anew for each batch, and a sum of each cost a fifth of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from vedette.pipeline.datasource import JournalSource, JournalStream
from vedette.pipeline.schema import OUTCOME
from vedette.pipeline.task import PipelineConfig
from vedette.pipeline.topology import hot_path

__all__ = ["COUNTS", "TellingStream", "sum_of_counts", "telling_source"]

COUNTS = "counts"
"""The column of such a reader: sums of `schema.OUTCOME`, as JSON."""


class TellingStream(JournalStream):
    def __init__(self, options: dict[str, str], context: PipelineConfig) -> None:
        super().__init__(options)
        self._context = context

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        outcomes = pa.Table.from_batches(hot_path(self._context)(super().read(partition)), OUTCOME)
        counts = {name: pc.sum(outcomes[name]).as_py() or 0 for name in OUTCOME.names}
        yield pa.RecordBatch.from_pydict({COUNTS: [msgspec.json.encode(counts).decode()]})


def sum_of_counts(texts: Iterable[str]) -> dict[str, float]:
    """What came of all ranges of a batch."""
    total: Counter[str] = Counter(dict.fromkeys(OUTCOME.names, 0))
    for text in texts:
        total.update(msgspec.json.decode(text, type=dict[str, float | int]))
    return dict(total)


def telling_source(context: PipelineConfig) -> type[JournalSource]:
    """A source with its context inside: options are shown in plans, and it holds a secret."""

    class ToldJournal(JournalSource):
        @classmethod
        def name(cls) -> str:
            return "vedette_told"

        def schema(self) -> str:
            return f"{COUNTS} STRING"

        def streamReader(self, schema: StructType) -> JournalStream:  # noqa: ARG002 - Spark's name
            return TellingStream(dict(self.options), context)

    return ToldJournal

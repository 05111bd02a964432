"""Stage 2: a change that is there twice counts once.

In the stream the journal has seen to it (UNIQUE source and event id) and this only looks; in a replay it is the
operator that does it. The first stays. A change that is read again for new subscriptions is another matter: it is told
to others, so it does not meet its first reading.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vedette.pipeline.task import PipelineConfig

__all__ = ["deduplicate"]


def deduplicate(batch: pa.RecordBatch, context: PipelineConfig) -> pa.RecordBatch:  # noqa: ARG001
    if pc.count_distinct(batch["event_id"], mode="all").as_py() == batch.num_rows:
        return batch  # as nearly always
    names = zip(
        batch["source"].to_pylist(),
        batch["event_id"].to_pylist(),
        batch["newer_than"].to_pylist(),
        strict=True,
    )
    first: dict[tuple[str, str, int], int] = {}
    for row, name in enumerate(names):
        first.setdefault(name, row)
    if len(first) == batch.num_rows:
        return batch
    return batch.take(pa.array(np.fromiter(first.values(), np.int64, len(first))))

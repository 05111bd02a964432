"""Stage 2: drop duplicate changes; the first one stays.

In the stream the journal guarantees uniqueness (UNIQUE source and event id), and this stage only checks it. In a
replay it does the work. A backfill of a change for new subscriptions is not a duplicate of its first delivery.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vedette.pipeline.task import Task

__all__ = ["deduplicate"]


def deduplicate(batch: pa.RecordBatch, task: Task) -> pa.RecordBatch:  # noqa: ARG001
    """Keep the first row of each source, event id and backfill."""
    if pc.count_distinct(batch["event_id"], mode="all").as_py() == batch.num_rows:
        return batch  # the usual case
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

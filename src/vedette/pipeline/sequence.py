"""Stage 3: order the changes of a partition by sequence number.

The journal assigned the numbers once, so a retried batch has the same ones. This stage sorts rows that a replay mixed
and rejects two changes with one number.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vedette.pipeline.task import Task

__all__ = ["sequence"]

DUPLICATE_SEQ = "two changes of a partition have the same sequence number"


def sequence(batch: pa.RecordBatch, task: Task) -> pa.RecordBatch:  # noqa: ARG001
    """Sort by partition, epoch and seq; the backfill comes first. A repeated number becomes a problem of its row."""
    is_regular = (batch["newer_than"].to_numpy() < 0).astype(np.int8)
    keys = (batch["seq"], batch["epoch"], batch["partition"])
    seq, epoch, partition = (key.to_numpy() for key in keys)
    order = np.lexsort((batch["offset"].to_numpy(), seq, epoch, partition, is_regular))
    duplicate = np.zeros(batch.num_rows, np.bool_)
    equal = [column[order][1:] == column[order][:-1] for column in (seq, epoch, partition, is_regular)]
    duplicate[order[1:][np.logical_and.reduce(equal)]] = True
    if (order[1:] < order[:-1]).any():
        batch, duplicate = batch.take(pa.array(order)), duplicate[order]
    if not duplicate.any():
        return batch
    problem = pc.if_else(pa.array(duplicate), pa.scalar(DUPLICATE_SEQ), batch["problem"])
    return batch.set_column(batch.schema.get_field_index("problem"), batch.schema.field("problem"), problem)

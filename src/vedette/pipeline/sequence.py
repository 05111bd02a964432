"""Stage 3: order the changes of a partition by sequence number.

The journal assigned the numbers once, so a retried batch has the same ones. This stage sorts rows that a replay mixed
and rejects two changes with one number.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vedette.pipeline.task import PipelineConfig

__all__ = ["sequence"]

DUPLICATE_SEQ = "two changes of a partition have one number"


def sequence(batch: pa.RecordBatch, context: PipelineConfig) -> pa.RecordBatch:  # noqa: ARG001
    again = (batch["newer_than"].to_numpy() < 0).astype(np.int8)
    keys = (batch["seq"], batch["epoch"], batch["partition"])
    seq, epoch, partition = (key.to_numpy() for key in keys)
    order = np.lexsort((batch["offset"].to_numpy(), seq, epoch, partition, again))
    repeated = np.zeros(batch.num_rows, np.bool_)
    same = [column[order][1:] == column[order][:-1] for column in (seq, epoch, partition, again)]
    repeated[order[1:][np.logical_and.reduce(same)]] = True
    if (order[1:] < order[:-1]).any():
        batch, repeated = batch.take(pa.array(order)), repeated[order]
    if not repeated.any():
        return batch
    problem = pc.if_else(pa.array(repeated), pa.scalar(DUPLICATE_SEQ), batch["problem"])
    return batch.set_column(batch.schema.get_field_index("problem"), batch.schema.field("problem"), problem)

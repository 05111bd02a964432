"""Stage 1: convert a journal row into a change, or record why it cannot be processed."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from vedette.pipeline.schema import CHANGES
from vedette.pipeline.task import Task
from vedette.sources.images import MAX_IMAGE_BYTES

__all__ = ["normalize"]

_OPS = ("create", "update", "delete")


def normalize(batch: pa.RecordBatch, task: Task) -> pa.RecordBatch:  # noqa: ARG001
    """Add the column `problem`. Images stay bytes: the match stage decodes each image once and finds invalid ones."""
    problem = pc.if_else(
        pc.invert(pc.is_in(batch["op"], pa.array(_OPS))),
        pa.scalar("unknown kind of change"),
        pc.if_else(
            pc.and_(pc.is_null(batch["before"]), pc.is_null(batch["after"])),
            pa.scalar("the change has neither a before image nor an after image"),
            pc.if_else(
                _is_too_large(batch),
                pa.scalar("the document is larger than 16 MB"),
                pa.scalar(None, pa.string()),
            ),
        ),
    )
    return pa.RecordBatch.from_arrays([*batch.columns, problem], schema=CHANGES)


def _is_too_large(batch: pa.RecordBatch) -> pa.BooleanArray:
    sizes = [pc.fill_null(pc.binary_length(batch[name]), 0) for name in ("before", "after")]
    return pc.greater(pc.max_element_wise(*sizes), MAX_IMAGE_BYTES)

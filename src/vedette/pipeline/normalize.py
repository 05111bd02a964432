"""Stage 1: convert a journal row into a change, or record why it cannot be."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from vedette.pipeline.schema import CHANGES
from vedette.pipeline.task import PipelineConfig
from vedette.sources.images import MAX_IMAGE_BYTES

__all__ = ["normalize"]

_OPS = ("create", "update", "delete")


def normalize(batch: pa.RecordBatch, context: PipelineConfig) -> pa.RecordBatch:  # noqa: ARG001
    """Images stay bytes; the match stage decodes each once and finds invalid ones."""
    problem = pc.if_else(
        pc.invert(pc.is_in(batch["op"], pa.array(_OPS))),
        pa.scalar("an unknown kind of change"),
        pc.if_else(
            pc.and_(pc.is_null(batch["before"]), pc.is_null(batch["after"])),
            pa.scalar("neither an image before nor one after"),
            pc.if_else(
                _too_large(batch), pa.scalar("a document larger than 16 MB"), pa.scalar(None, pa.string())
            ),
        ),
    )
    return pa.RecordBatch.from_arrays([*batch.columns, problem], schema=CHANGES)


def _too_large(batch: pa.RecordBatch) -> pa.BooleanArray:
    sizes = [pc.fill_null(pc.binary_length(batch[name]), 0) for name in ("before", "after")]
    return pc.greater(pc.max_element_wise(*sizes), MAX_IMAGE_BYTES)

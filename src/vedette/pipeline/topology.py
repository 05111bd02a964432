"""The pipeline, in one line: STAGES. Each is one function of a batch; `fuse` makes one of them all.

Fused they run in one Python hop per batch, that of the reader (`telling.py`): a chain of separate Spark stages with a
shuffle cost 230-350 ms a batch where this costs about 70 (docs/design/pipeline.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from vedette.pipeline import telemetry
from vedette.pipeline.context import PipelineContext
from vedette.pipeline.deduplicate import deduplicate
from vedette.pipeline.deliver import complete, deliver
from vedette.pipeline.ingest_frames import Complete
from vedette.pipeline.match import match
from vedette.pipeline.normalize import normalize
from vedette.pipeline.route import route
from vedette.pipeline.sampled_log import remark
from vedette.pipeline.schema import OUTCOME, PROGRESS
from vedette.pipeline.sequence import sequence

__all__ = ["STAGES", "Stage", "fuse", "hot_path"]

Stage: TypeAlias = Callable[[pa.RecordBatch, PipelineContext], pa.RecordBatch]

STAGES: tuple[Stage, ...] = (normalize, deduplicate, sequence, match, route, deliver)


def fuse(stages: Sequence[Stage]) -> Stage:
    """One stage that is all of them, in order."""

    def fused(batch: pa.RecordBatch, context: PipelineContext) -> pa.RecordBatch:
        for stage in stages:
            batch = stage(batch, context)
        return batch

    return fused


def _attempt() -> int:
    """How often this task was tried before; 0 outside of Spark."""
    task = TaskContext.get()
    return task.attemptNumber() if task is not None else 0


def hot_path(context: PipelineContext) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What runs in the workers: every batch of a range through the stages, then the end of the range is told."""
    run = fuse(STAGES)

    def through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            marks = pc.equal(batch["op"], PROGRESS)
            changes = batch.filter(pc.invert(marks))
            if changes.num_rows:
                telemetry.take()  # an attempt that failed here before counted for nothing
                if attempt := _attempt():
                    telemetry.note_repeated(changes.num_rows)
                    remark("task.repeated", "task", f"A task runs again, for the {attempt}. time")
                yield run(changes, context)
            for mark in batch.filter(marks).to_pylist():
                if mark["epoch"]:
                    yield pa.RecordBatch.from_pylist([{"skipped": mark["epoch"]}], schema=OUTCOME)
                frame = Complete(
                    offset=mark["offset"],
                    share=mark["partition"],
                    shares=mark["seq"],
                    version=mark["version"],
                )
                complete(frame, context)

    return through

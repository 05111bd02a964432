"""The pipeline as a tuple of STAGES. Each stage is a function of a batch; `fuse` combines them.

Fused, they run in one Python hop per batch: separate Spark stages with a shuffle took 230-350 ms per batch, this
takes about 70 (docs/design/pipeline.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from vedette.pipeline import telemetry
from vedette.pipeline.deduplicate import deduplicate
from vedette.pipeline.deliver import abandon, complete, deliver, much_is_out, settle
from vedette.pipeline.match import match
from vedette.pipeline.normalize import normalize
from vedette.pipeline.route import route
from vedette.pipeline.schema import OUTCOME, PROGRESS
from vedette.pipeline.sequence import sequence
from vedette.pipeline.task import PipelineConfig
from vedette.transport.ingest_messages import Complete
from vedette.transport.sampled_log import log_sampled

__all__ = ["STAGES", "Stage", "fuse", "hot_path"]

Stage: TypeAlias = Callable[[pa.RecordBatch, PipelineConfig], pa.RecordBatch]

STAGES: tuple[Stage, ...] = (normalize, deduplicate, sequence, match, route, deliver)


def fuse(stages: Sequence[Stage]) -> Stage:
    """Combine the stages into one, in order."""

    def fused(batch: pa.RecordBatch, context: PipelineConfig) -> pa.RecordBatch:
        for stage in stages:
            batch = stage(batch, context)
        return batch

    return fused


def _attempt() -> int:
    """Attempt number of this task; 0 outside Spark."""
    task = TaskContext.get()
    return task.attemptNumber() if task is not None else 0


def hot_path(context: PipelineConfig) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Runs in the workers: pass every piece of a range through the stages, then announce the end of the range.

    Pieces are sent without waiting. The counts are returned, and the end announced, once everything is accepted.
    """
    run = fuse(STAGES)

    def through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        telemetry.take()  # a failed attempt in this worker does not count
        abandon()
        done: list[pa.RecordBatch] = []
        for batch in batches:
            marks = pc.equal(batch["op"], PROGRESS)
            changes = batch.filter(pc.invert(marks))
            if changes.num_rows:
                _note_attempt(changes.num_rows)
                done.append(run(changes, context))
            ends = batch.filter(marks).to_pylist()
            if done and (ends or much_is_out()):
                yield pa.concat_batches([*done, settle(context)])
                done = []
            for end in ends:
                if end["epoch"]:
                    yield pa.RecordBatch.from_pylist([{"skipped": end["epoch"]}], schema=OUTCOME)
                complete(_end_of(end), context)
        if done:
            yield pa.concat_batches([*done, settle(context)])

    return through


def _note_attempt(changes: int) -> None:
    if attempt := _attempt():
        telemetry.note_repeated(changes)
        log_sampled("task.repeated", "task", f"Retrying task (attempt {attempt})")


def _end_of(mark: dict[str, Any]) -> Complete:
    return Complete(
        offset=mark["offset"], share=mark["partition"], shares=mark["seq"], version=mark["version"]
    )

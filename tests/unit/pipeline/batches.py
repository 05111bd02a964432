"""Journal rows for tests of stages, with defaults for all fields that a test does not set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from vedette.pipeline.schema import CHANGE_ROWS, journal_rows_to_batch
from vedette.pipeline.task import PipelineConfig, Task
from vedette.sources.images import encode_image
from vedette.sources.records import ChangeRow

__all__ = ["batch_of", "nowhere", "row", "rows_of", "task_nowhere"]


def row(offset: int, **more: Any) -> ChangeRow:
    values: dict[str, Any] = {
        "source": "shop",
        "tenant": "t",
        "partition": 1,
        "epoch": 1,
        "seq": offset,
        "event_id": f"e{offset}",
        "collection": "shop::orders",
        "key": f"k{offset}",
        "op": "create",
        "before": None,
        "after": {"n": offset},
        "before_known": True,
        "time_ms": offset,
        "appended_ms": offset,
        "transaction": "",
    }
    values |= more
    for side in ("before", "after"):
        if isinstance(values[side], dict):
            values[side] = encode_image(values[side])
    return ChangeRow(offset=offset, **values)


def batch_of(*rows: ChangeRow, version: int = 0, newer_than: int = -1) -> pa.RecordBatch:
    """A batch as the data source reads it."""
    return journal_rows_to_batch(rows, version, newer_than)


def rows_of(*rows: ChangeRow, version: int = 0, newer_than: int = -1) -> pa.RecordBatch:
    """A batch as the first stage receives it, without the column `range_end`."""
    return batch_of(*rows, version=version, newer_than=newer_than).select(CHANGE_ROWS.names)


def nowhere() -> PipelineConfig:
    """A configuration for stages that open nothing."""
    return PipelineConfig(journal_url="", registry_url="", index_folder=Path("/nowhere"))


def task_nowhere() -> Task:
    """A task for stages that use neither gateways nor connections."""
    return Task(nowhere())

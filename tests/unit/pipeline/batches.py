"""Rows of the journal for tests of stages: only what a test cares about need be said."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from vedette.pipeline.schema import journal_rows_to_batch
from vedette.pipeline.task import PipelineConfig
from vedette.sources.images import encode_image
from vedette.sources.records import ChangeRow

__all__ = ["batch_of", "row"]


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
    return journal_rows_to_batch(rows, version, newer_than)


def nowhere() -> PipelineConfig:
    from pathlib import Path

    return PipelineConfig(journal_url="", registry_url="", index_folder=Path("/nowhere"))

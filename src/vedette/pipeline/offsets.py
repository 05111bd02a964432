"""Offsets of the journal stream, and how a range of offsets becomes tasks. Pure.

An offset is a JSON object. Spark stores it in the checkpoint and compares offsets as text, so the order of the keys is
fixed and only this module builds offsets.

    format         version of this encoding
    offset         changes up to this journal offset are delivered
    index_version  the version of the subscription index that they were matched with
    modes          optional: lagging partitions by id, "shedding" or "degraded"; a retried batch skips the same changes
    heartbeat      optional: number of an empty batch, which keeps Python workers alive
    watermark_ms   windows only: windows that end at or before this time have ended
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pyspark.sql.datasource import InputPartition

from vedette.pipeline.schema import RangeEnd

__all__ = [
    "OFFSET_FORMAT",
    "SINGLE_TASK_ROWS",
    "JournalRange",
    "Offset",
    "encode_offset",
    "plan_ranges",
]

Offset: TypeAlias = dict[str, Any]
OFFSET_FORMAT = 2
"""2: explicit names (`index_version`, `heartbeat`, `watermark_ms`). 1 had no `format`."""
SINGLE_TASK_ROWS = 2_000
"""A range with fewer rows is one task, because a second task costs more to start than it saves."""


def encode_offset(
    offset: int,
    index_version: int,
    *,
    modes: Mapping[int, str] | None = None,
    heartbeat: int = 0,
    watermark_ms: int | None = None,
) -> Offset:
    """Build an offset. Equal arguments give equal JSON text."""
    encoded: Offset = {"format": OFFSET_FORMAT, "offset": offset, "index_version": index_version}
    if modes:
        encoded["modes"] = {str(partition): modes[partition] for partition in sorted(modes)}
    if heartbeat:
        encoded["heartbeat"] = heartbeat
    if watermark_ms is not None:
        encoded["watermark_ms"] = watermark_ms
    return encoded


@dataclass(frozen=True)
class JournalRange(InputPartition):
    """One task: start_offset < offset ≤ end_offset, for the partitions whose id is `share` modulo `shares`."""

    start_offset: int
    end_offset: int
    share: int
    shares: int
    index_version: int
    backfill_after: int | None = None
    """Offset after which changes are read again for new subscriptions; None if there are none."""
    backfill_newer_than: int = -1
    """The backfill is for subscriptions that are newer than this index version."""
    shedding: frozenset[int] = frozenset()
    """Lagging partitions: subscriptions of low priority are skipped."""
    degraded: frozenset[int] = frozenset()
    """Partitions that lag too far. Their changes are skipped."""
    previous_index_version: int = -1
    """Windows: the index version of the previous batch."""
    watermark_before_ms: int = 0
    watermark_after_ms: int = 0
    """Windows: the watermarks before and after the range."""

    def end(self, skipped_changes: int) -> RangeEnd:
        """Return the record that follows the last change of the range."""
        return RangeEnd(
            offset=self.end_offset,
            share=self.share,
            shares=self.shares,
            index_version=self.index_version,
            previous_index_version=self.previous_index_version,
            skipped_changes=skipped_changes,
            watermark_before_ms=self.watermark_before_ms,
            watermark_after_ms=self.watermark_after_ms,
        )


def plan_ranges(start: Offset, end: Offset, shares: int, lowest_boundary: int | None) -> list[JournalRange]:
    """Split the range between two offsets into tasks.

    `lowest_boundary` is the lowest snapshot offset of the subscriptions that are new in the index version of `end`.
    If it is below the range, each task backfills the changes in between, so that no new subscription misses the
    changes between its snapshot and its first batch.
    """
    if start == end:
        return []
    after, upto = start["offset"], end["offset"]
    count = 1 if upto - after < SINGLE_TASK_ROWS else max(1, shares)
    backfill = lowest_boundary if lowest_boundary is not None and lowest_boundary < after else None
    modes = end.get("modes", {})
    shedding, degraded = (
        frozenset(int(partition) for partition, mode in modes.items() if mode == name)
        for name in ("shedding", "degraded")
    )
    return [
        JournalRange(
            start_offset=after,
            end_offset=upto,
            share=share,
            shares=count,
            index_version=end["index_version"],
            backfill_after=backfill,
            backfill_newer_than=start["index_version"] if backfill is not None else -1,
            shedding=shedding,
            degraded=degraded,
            previous_index_version=start["index_version"] if "watermark_ms" in end else -1,
            watermark_before_ms=start.get("watermark_ms", 0),
            watermark_after_ms=end.get("watermark_ms", 0),
        )
        for share in range(count)
    ]

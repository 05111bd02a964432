"""The one Spark data source: journal ranges by integer offsets, each with a pinned index version.

An offset is `{"offset": n, "version": v}`: changes up to n, matched against version v of the index. It has `modes` if
partitions lag (`lag_policy`), so that a retried batch skips the same changes. A range whose version is newer than its
start reads a part of the past again (backfill) for subscriptions added in between, from their lowest start offset on,
so that none misses changes between its snapshot and its first batch.

Behaviour of Python data sources in Spark 4.3 that this module relies on: offsets are compared as JSON text, so keys
have a fixed order; `partitions` is also called for an empty range (start == end); `commit` is not called while the
stream is idle; `initialOffset` is called repeatedly until the first batch is committed, also after a crash, so the
start is decided earlier (`initial_offset`); the reader on the driver lives as long as the query, the reader on an
executor as long as a task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from vedette.clock import Clock, SystemClock
from vedette.errors import StoreError
from vedette.pipeline.schema import JOURNAL, PROGRESS, journal_rows_to_batch, spark_schema
from vedette.pipeline.worker_cache import ConnectionCache
from vedette.sources.journal.seam import CollectionJournal, open_journal
from vedette.sources.records import ChangeRow
from vedette.subscriptions.index.versions import latest_version, open_version
from vedette.subscriptions.registry.registry import SubscriptionRegistry
from vedette.subscriptions.windows.windowed_subscriptions import windowed_subscriptions
from vedette.subscriptions.windows.windowed_watch import window_ends_between
from vedette.values import timestamp_to_ms

__all__ = ["JournalBatch", "JournalRange", "JournalSource", "JournalStream", "offset_of", "plan_ranges"]

Offset: TypeAlias = dict[str, Any]
SINGLE_TASK_ROWS = 2_000
"""A range with fewer rows is one task, because more tasks would cost more to start than they save."""
ARROW_BATCH_ROWS = 1_000
"""Rows of one Arrow batch: gateways process one while the next is read and matched."""
JOURNAL_WAIT_SECONDS = 0.1
"""Seconds of one wait for a change; then new subscriptions are checked."""
MAX_IDLE_WAIT_SECONDS = 1.0
HEARTBEAT_SECONDS = 30.0
"""Seconds without changes after which an empty batch runs. Spark ends Python workers that are idle for a minute, and
the next change would wait for new ones (700 instead of 70 ms)."""
"""Seconds that `latestOffset` waits before it reports no change."""


def offset_of(offset: int, version: int, modes: Mapping[int, str] | None = None) -> Offset:
    """Encode an offset. The only place that does, because Spark compares the text."""
    found: Offset = {"offset": offset, "version": version}
    if modes:
        found = {"modes": {str(partition): modes[partition] for partition in sorted(modes)}, **found}
    return found


@dataclass(frozen=True)
class JournalRange(InputPartition):
    """One task: after < offset ≤ upto for the partitions whose id is `share` modulo `shares`."""

    after: int
    upto: int
    share: int
    shares: int
    version: int
    again_after: int | None = None
    """Start of the backfill for subscriptions newer than `newer_than`; None if there are none."""
    newer_than: int = -1
    shedding: frozenset[int] = frozenset()
    """Lagging partitions: subscriptions of low priority are skipped."""
    skipped: frozenset[int] = frozenset()
    """Partitions that lag so far that nothing of them is delivered."""
    version_before: int = -1
    """For windows: the version of the previous batch."""
    watermarks: tuple[int, int] = (0, 0)
    """For windows: the watermarks before and after the range."""


def plan_ranges(start: Offset, end: Offset, shares: int, lowest_boundary: int | None) -> list[JournalRange]:
    """Split a range into tasks. Pure."""
    if start == end:
        return []
    after, upto = start["offset"], end["offset"]
    count = 1 if upto - after < SINGLE_TASK_ROWS else max(1, shares)
    again = lowest_boundary if lowest_boundary is not None and lowest_boundary < after else None
    modes = end.get("modes", {})
    shedding, skipped = (
        frozenset(int(partition) for partition, mode in modes.items() if mode == wanted)
        for wanted in ("shedding", "degraded")
    )
    return [
        JournalRange(
            after=after,
            upto=upto,
            share=share,
            shares=count,
            version=end["version"],
            again_after=again,
            newer_than=start["version"] if again is not None else -1,
            shedding=shedding,
            skipped=skipped,
            version_before=start["version"] if "watermark" in end else -1,
            watermarks=(start.get("watermark", 0), end.get("watermark", 0)),
        )
        for share in range(count)
    ]


class JournalSource(DataSource):
    """Options: `journal`, `index`, `registry` (addresses), `shares`, `maxrows`, `maxbytes`, `start` (an offset),
    `patience` (seconds to wait for a change) and `warm` (seconds without changes until an empty batch)."""

    @classmethod
    def name(cls) -> str:
        return "vedette_journal"

    def schema(self) -> str:
        return spark_schema(JOURNAL)

    def reader(self, schema: StructType) -> JournalBatch:  # noqa: ARG002
        return JournalBatch(dict(self.options))

    def streamReader(self, schema: StructType) -> JournalStream:  # noqa: ARG002 - Spark's name
        return JournalStream(dict(self.options))


class _JournalReading:
    """Common to stream and batch: the options, and reading a range on an executor."""

    def __init__(self, options: dict[str, str]) -> None:
        self._address = options["journal"]
        self._index = Path(options["index"])
        self._shares = int(options.get("shares", "2"))
        self._max_rows = int(options.get("maxrows", "20000"))
        self._max_bytes = int(options.get("maxbytes", str(64 * 1024 * 1024)))
        self._start = int(options["start"])
        self._registry = options.get("registry", "")
        self._patience = float(options.get("patience", MAX_IDLE_WAIT_SECONDS))
        self._warm = float(options.get("warm", HEARTBEAT_SECONDS))
        self._warm_at: float | None = None
        """Interval of empty batches, and the time of the next one; None after a change."""
        self._lateness_ms = int(options["windows"]) if "windows" in options else None
        """Set for windows: the lag of the watermark in the offsets."""

    # --- on an executor: a fresh object per task ----------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, JournalRange)
        if partition.again_after is not None:
            newer = partition.newer_than
            for rows in self._rows(partition.again_after, partition.after, partition, newer):
                yield journal_rows_to_batch(rows, partition.version, newer)
        skipped = 0
        for rows in self._rows(partition.after, partition.upto, partition, -1):
            told = (
                [row for row in rows if row.partition not in partition.skipped] if partition.skipped else rows
            )
            skipped += len(rows) - len(told)
            if told:
                yield journal_rows_to_batch(told, partition.version, -1, partition.shedding)
        yield range_end_batch(partition, skipped)

    def _rows(
        self, after: int, upto: int, partition: JournalRange, newer_than: int
    ) -> Iterator[Sequence[ChangeRow]]:
        while after < upto:
            share = (partition.share, partition.shares)
            try:
                rows = self._journal.read(after, upto, share=share, limit=ARROW_BATCH_ROWS)
            except StoreError as error:
                if error.code != "E6006" or newer_than < 0:
                    raise
                after = error.fields["first"] - 1  # older than the journal: read what is left
                continue
            if rows:
                yield rows
            after = rows[-1].offset if len(rows) == ARROW_BATCH_ROWS else upto

    @property
    def _journal(self) -> CollectionJournal:
        return journal(self._address)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__


class JournalStream(_JournalReading, DataSourceStreamReader):
    """The journal as a stream."""

    clock: Clock = SystemClock()
    """Used on the driver only. A class attribute, because Spark pickles the instances."""

    # --- on the driver: one object as long as the query lives -------------------------------------------------

    def initialOffset(self) -> Offset:
        """Version 0, so that the first batch reads the backfill of every subscription."""
        return offset_of(self._start, 0)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._max_rows)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Wait for a change or for new subscriptions, then return the end of the next batch.

        Modes are read after the offset: a client that was informed of the end of a mode has a snapshot at or after
        every skipped change.
        """
        if self._lateness_ms is not None:
            return self._latest_of_windows(start, self._lateness_ms)
        after = start["offset"]
        last, version = self._wait(after, start["version"])
        if last <= after:
            lowest = self._lowest_boundary(start["version"], version)
            return offset_of(after, version) if lowest is not None and lowest < after else self._rested(start)
        self._warm_at = None
        if not isinstance(limit, ReadAllAvailable):
            rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self._max_rows
            last = self._journal.end_within_limits(after, rows, self._max_bytes)
        return offset_of(last, version, self._modes())

    def _rested(self, start: Offset) -> Offset:
        """No change: the same offset, from time to time with another number."""
        now = self.clock.monotonic()
        if self._warm_at is None:
            self._warm_at = now + self._warm
        if now < self._warm_at:
            return start
        self._warm_at = now + self._warm
        return {**start, "beat": start.get("beat", 0) + 1}

    def _wait(self, after: int, known: int) -> tuple[int, int]:
        """Return the last offset and version as soon as either is new. Each empty answer costs a JVM round trip."""
        left = self._patience
        while True:
            last = self._journal.wait_for_append(after, min(JOURNAL_WAIT_SECONDS, left))
            version = max(known, latest_version(self._index))
            left -= JOURNAL_WAIT_SECONDS
            if last > after or version > known or left <= 0:
                return last, version

    def _latest_of_windows(self, start: Offset, lateness_ms: int) -> Offset:
        """Advances on a change or at a window end; does not advance while there is no windowed subscription."""
        last = self._journal.wait_for_append(start["offset"], JOURNAL_WAIT_SECONDS)
        version = max(start["version"], latest_version(self._index))
        if not windowed_subscriptions(self._index, version) and not windowed_subscriptions(
            self._index, start["version"]
        ):
            return start
        before = start.get("watermark", 0)
        watermark = max(before, timestamp_to_ms(self.clock.now()) - lateness_ms)
        if windowed_subscriptions(self._index, start["version"]):
            end = self._journal.end_within_limits(start["offset"], self._max_rows, self._max_bytes)
            if end < last:  # not at the end: later changes are appended after the rows that are read now
                (row,) = self._journal.read(end - 1, end)
                watermark = max(before, min(watermark, row.appended_ms - lateness_ms))
            last = end
        due = any(
            window_ends_between(each.watch, each.created, before, watermark)
            for each in windowed_subscriptions(self._index, version).values()
        )
        if last <= start["offset"] and not due and version == start["version"]:
            return start
        return {**offset_of(last, version), "watermark": watermark}

    def _modes(self) -> Mapping[int, str]:
        return registry(self._registry).modes() if self._registry else {}

    def partitions(self, start: Offset, end: Offset) -> Sequence[JournalRange]:
        if self._lateness_ms is None:
            return plan_ranges(
                start, end, self._shares, self._lowest_boundary(start["version"], end["version"])
            )
        before, now = (windowed_subscriptions(self._index, place["version"]) for place in (start, end))
        if not before:
            start = {
                **start,
                "offset": end["offset"],
            }  # no windows before: only what the new ones need
        fresh = [each.boundary for number, each in now.items() if number not in before]
        return plan_ranges(start, end, self._shares, min(fresh, default=None))

    def _lowest_boundary(self, before: int, now: int) -> int | None:
        if now == before:
            return None
        return open_version(self._index, now).manifest.lowest_boundary(before)


class JournalBatch(_JournalReading, DataSourceReader):
    """The journal as a batch: everything after `start`, for captures."""

    def partitions(self) -> Sequence[JournalRange]:
        end = offset_of(self._journal.last_offset(), latest_version(self._index))
        return plan_ranges(offset_of(self._start, end["version"]), end, self._shares, None)


registry: ConnectionCache[SubscriptionRegistry] = ConnectionCache(SubscriptionRegistry)
journal: ConnectionCache[CollectionJournal] = ConnectionCache(open_journal)


def range_end_batch(range_: JournalRange, skipped: int) -> pa.RecordBatch:
    """The row that marks the end of a range; see `schema.PROGRESS`. `epoch` holds the number of skipped changes."""
    mark = ChangeRow(
        offset=range_.upto,
        source="",
        tenant="",
        partition=range_.share,
        epoch=skipped,
        seq=range_.shares,
        event_id="",
        collection="",
        key="",
        op=PROGRESS,
        before=None,
        after=None,
        before_known=True,
        time_ms=range_.watermarks[1],
        appended_ms=range_.watermarks[0],
        transaction="",
    )
    return journal_rows_to_batch([mark], range_.version, range_.version_before)

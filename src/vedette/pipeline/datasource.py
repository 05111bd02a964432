"""The one Spark data source, `vedette_journal`: ranges of the journal by integer offsets.

An offset pins the index version (`offsets.py`), so a retried batch reads the same rows and matches the same
subscriptions. If the index version of a range is newer than that of the range before, the range reads a part of the
past again (backfill) for the subscriptions that were added in between.

    ChangesStreamReader   the delivery query: advances on a change or a new index version
    WindowsStreamReader   the windows query: has a watermark in its offsets, and advances at window ends too
    JournalBatchReader    captures: everything after an offset

Behaviour of Python data sources in Spark 4.3 that this module relies on:

- Spark compares offsets as JSON text, so keys have a fixed order.
- `partitions` is also called for an empty range (start == end).
- `commit` is not called while the stream is idle.
- `initialOffset` is called repeatedly until the first batch is committed, also after a crash. So the start is decided
  earlier and passed as an option (`checkpoint.initial_offset`).
- The reader on the driver lives as long as the query; the reader on an executor lives as long as a task.
- Spark redacts option keys that contain "url" in plans. A PostgreSQL address may contain a password, so addresses are
  options with such names. The ingest secret is never an option.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from vedette.clock import Clock, SystemClock
from vedette.errors import StoreError
from vedette.pipeline.offsets import JournalRange, Offset, encode_offset, plan_ranges
from vedette.pipeline.schema import JOURNAL, journal_rows_to_batch, range_end_to_batch, spark_schema
from vedette.pipeline.task import PipelineConfig
from vedette.pipeline.worker_cache import journals, registries
from vedette.sources.journal.seam import CollectionJournal
from vedette.sources.records import ChangeRow
from vedette.subscriptions.index.versions import latest_version, open_version
from vedette.subscriptions.windows.windowed_subscriptions import windowed_subscriptions
from vedette.subscriptions.windows.windowed_watch import window_ends_between
from vedette.values import timestamp_to_ms

__all__ = [
    "ChangesStreamReader",
    "JournalBatchReader",
    "JournalDataSource",
    "WindowsStreamReader",
    "journal_options",
    "read_range",
]

ARROW_BATCH_ROWS = 1_000
"""Maximum rows of an Arrow batch. Gateways process a batch while the next one is read and matched."""
JOURNAL_WAIT_SECONDS = 0.1
"""Seconds of one wait for a change. After each wait the reader checks for a new index version."""
MAX_IDLE_WAIT_SECONDS = 1.0
"""Seconds that `latestOffset` waits before it reports that nothing changed. Each answer costs a JVM round trip."""
HEARTBEAT_SECONDS = 30.0
"""Seconds without changes after which an empty batch runs. Spark ends Python workers that are idle for a minute, and
the next change would wait for new ones (818 instead of 86 ms)."""


def journal_options(
    config: PipelineConfig,
    *,
    start: int,
    shares: int = 2,
    max_rows: int = 20_000,
    max_bytes: int = 64 * 1024 * 1024,
    max_wait_seconds: float = MAX_IDLE_WAIT_SECONDS,
    heartbeat_seconds: float = HEARTBEAT_SECONDS,
    lateness_ms: int | None = None,
) -> dict[str, str]:
    """Return the options of the data source.

    `start` is the offset before the first change. `shares` is the number of tasks of a large batch; `max_rows` and
    `max_bytes` bound a batch. `lateness_ms` selects the windows reader: its watermark lags the clock by this time.
    """
    options = {
        "journal_url": config.journal_url,
        "registry_url": config.registry_url,
        "index_folder": str(config.index_folder),
        "start_offset": str(start),
        "shares": str(shares),
        "max_rows": str(max_rows),
        "max_bytes": str(max_bytes),
        "max_wait_seconds": str(max_wait_seconds),
        "heartbeat_seconds": str(heartbeat_seconds),
    }
    return options if lateness_ms is None else {**options, "lateness_ms": str(lateness_ms)}


class JournalDataSource(DataSource):
    """Options: see `journal_options`."""

    @classmethod
    def name(cls) -> str:
        return "vedette_journal"

    def schema(self) -> StructType:
        return spark_schema(JOURNAL)

    def reader(self, schema: StructType) -> JournalBatchReader:  # noqa: ARG002 - Spark's name
        return JournalBatchReader(self.options)

    def streamReader(self, schema: StructType) -> _StreamReader:  # noqa: ARG002 - Spark's name
        if "lateness_ms" in self.options:
            return WindowsStreamReader(self.options)
        return ChangesStreamReader(self.options)


def read_range(journal: CollectionJournal, range_: JournalRange) -> Iterator[pa.RecordBatch]:
    """Read the backfill of a range, then the range itself, then the row that marks its end."""
    if range_.backfill_after is not None:
        for rows in _read_rows(journal, range_.backfill_after, range_.start_offset, range_, is_backfill=True):
            yield journal_rows_to_batch(rows, range_.index_version, range_.backfill_newer_than)
    skipped = 0
    for rows in _read_rows(journal, range_.start_offset, range_.end_offset, range_, is_backfill=False):
        kept = [row for row in rows if row.partition not in range_.degraded] if range_.degraded else rows
        skipped += len(rows) - len(kept)
        if kept:
            yield journal_rows_to_batch(kept, range_.index_version, -1, range_.shedding)
    yield range_end_to_batch(range_.end(skipped))


def _read_rows(
    journal: CollectionJournal, after: int, upto: int, range_: JournalRange, *, is_backfill: bool
) -> Iterator[Sequence[ChangeRow]]:
    """Read in pieces of ARROW_BATCH_ROWS. A backfill starts later if the journal no longer has its first changes."""
    while after < upto:
        share = (range_.share, range_.shares)
        try:
            rows = journal.read(after, upto, share=share, limit=ARROW_BATCH_ROWS)
        except StoreError as error:
            if error.code != "E6006" or not is_backfill:
                raise
            after = error.fields["first"] - 1
            continue
        if rows:
            yield rows
        after = rows[-1].offset if len(rows) == ARROW_BATCH_ROWS else upto


class _JournalReader:
    """Options that all readers share. Spark pickles readers, so stores are opened through `worker_cache`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._journal_url = options["journal_url"]
        self._index = Path(options["index_folder"])
        self._start = int(options["start_offset"])
        self._shares = int(options["shares"])

    @property
    def _journal(self) -> CollectionJournal:
        return journals(self._journal_url)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs on an executor."""
        assert isinstance(partition, JournalRange)
        return read_range(self._journal, partition)


class JournalBatchReader(_JournalReader, DataSourceReader):
    """Everything after the start offset, for captures."""

    def partitions(self) -> Sequence[JournalRange]:
        version = latest_version(self._index)
        end = encode_offset(self._journal.last_offset(), version)
        return plan_ranges(encode_offset(self._start, version), end, self._shares, None)


class _StreamReader(_JournalReader, DataSourceStreamReader):
    clock: Clock = SystemClock()
    """Used on the driver only. A class attribute, because Spark pickles the instances."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._max_rows = int(options["max_rows"])
        self._max_bytes = int(options["max_bytes"])

    def initialOffset(self) -> Offset:
        """Index version 0, so that the first batch reads the backfill of every subscription."""
        return encode_offset(self._start, 0)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._max_rows)


class ChangesStreamReader(_StreamReader):
    """Advances when the journal has a change or when subscriptions were added. The driver's part of the query."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._registry_url = options["registry_url"]
        self._max_wait_seconds = float(options["max_wait_seconds"])
        self._heartbeat_seconds = float(options["heartbeat_seconds"])
        self._next_heartbeat: float | None = None
        """Monotonic time of the next empty batch; None after a change."""

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Wait for a change or for new subscriptions, then return the end of the next batch.

        Modes are read after the offset: a client that was informed of the end of a mode has a snapshot at or after
        every skipped change.
        """
        after = start["offset"]
        last, version = self._wait_for_change(after, start["index_version"])
        if last <= after:
            lowest = self._lowest_boundary(start["index_version"], version)
            needs_backfill = lowest is not None and lowest < after
            return encode_offset(after, version) if needs_backfill else self._heartbeat_offset(start)
        self._next_heartbeat = None
        if not isinstance(limit, ReadAllAvailable):
            rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self._max_rows
            last = self._journal.end_within_limits(after, rows, self._max_bytes)
        return encode_offset(last, version, modes=self._modes())

    def partitions(self, start: Offset, end: Offset) -> Sequence[JournalRange]:
        lowest = self._lowest_boundary(start["index_version"], end["index_version"])
        return plan_ranges(start, end, self._shares, lowest)

    def _heartbeat_offset(self, start: Offset) -> Offset:
        """Return `start`, or once per heartbeat interval the same place with the next heartbeat number."""
        now = self.clock.monotonic()
        if self._next_heartbeat is None:
            self._next_heartbeat = now + self._heartbeat_seconds
        if now < self._next_heartbeat:
            return start
        self._next_heartbeat = now + self._heartbeat_seconds
        return {**start, "heartbeat": start.get("heartbeat", 0) + 1}

    def _wait_for_change(self, after: int, known_version: int) -> tuple[int, int]:
        """Return the last offset and the index version as soon as either is new, or after the maximum wait."""
        left = self._max_wait_seconds
        while True:
            last = self._journal.wait_for_append(after, min(JOURNAL_WAIT_SECONDS, left))
            version = max(known_version, latest_version(self._index))
            left -= JOURNAL_WAIT_SECONDS
            if last > after or version > known_version or left <= 0:
                return last, version

    def _modes(self) -> Mapping[int, str]:
        return registries(self._registry_url).modes() if self._registry_url else {}

    def _lowest_boundary(self, before: int, now: int) -> int | None:
        if now == before:
            return None
        return open_version(self._index, now).manifest.lowest_boundary(before)


class WindowsStreamReader(_StreamReader):
    """Advances when a change arrives or a window ends, and only while there are windowed subscriptions."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._lateness_ms = int(options["lateness_ms"])

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: ARG002 - Spark's name
        last = self._journal.wait_for_append(start["offset"], JOURNAL_WAIT_SECONDS)
        version = max(start["index_version"], latest_version(self._index))
        windows_before = windowed_subscriptions(self._index, start["index_version"])
        windows_now = windowed_subscriptions(self._index, version)
        if not windows_now and not windows_before:
            return start
        before = start.get("watermark_ms", 0)
        watermark = max(before, timestamp_to_ms(self.clock.now()) - self._lateness_ms)
        if windows_before:
            end = self._journal.end_within_limits(start["offset"], self._max_rows, self._max_bytes)
            if end < last:
                # The batch ends before the end of the journal. Later changes were appended after its last row, so
                # the watermark must not pass the time of that row.
                (row,) = self._journal.read(end - 1, end)
                watermark = max(before, min(watermark, row.appended_ms - self._lateness_ms))
            last = end
        due = any(
            window_ends_between(each.watch, each.created, before, watermark) for each in windows_now.values()
        )
        if last <= start["offset"] and not due and version == start["index_version"]:
            return start
        return encode_offset(last, version, watermark_ms=watermark)

    def partitions(self, start: Offset, end: Offset) -> Sequence[JournalRange]:
        before, now = (windowed_subscriptions(self._index, place["index_version"]) for place in (start, end))
        if not before:
            # There were no windows: read only the backfill of the new ones.
            start = {**start, "offset": end["offset"]}
        new_boundaries = [each.boundary for number, each in now.items() if number not in before]
        return plan_ranges(start, end, self._shares, min(new_boundaries, default=None))

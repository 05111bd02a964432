"""The windows query: windowed watches over collections, with their state in Spark's state store.

    readStream(vedette_journal, lateness_ms) ▸ mapInArrow(SelectWindowRows) ▸ groupBy(subscription)
        ▸ transformWithState(WindowProcessor) ▸ mapInArrow(DeliverWindowEvents) ▸ noop

Theory of operation. `subscriptions.windows.windowed_watch` defines the meaning of windows and does not know Spark. This
module makes it survive failures:

- A batch is a range of the journal with an index version and a watermark. All three are in the offset, so a retried
  batch ends the same windows.
- The state of a subscription is one value in the state store, committed with the batch. Its encoding has a version
  (`subscriptions.windows.state_codec`). A checkpoint with another version is deleted, and all windows start again.
- Each window event has a position. Gateways drop an event whose position they have seen.

The query runs only while there are windowed subscriptions (`windows_runner`). A new subscription starts at its
boundary, the journal offset of its snapshot.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Row, SparkSession
from pyspark.sql.functions import sum as sum_
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from vedette.errors import SourceError
from vedette.pipeline.checkpoint import delete_other_format, initial_offset
from vedette.pipeline.datasource import JournalDataSource, journal_options
from vedette.pipeline.offsets import OFFSET_FORMAT
from vedette.pipeline.queries.query_start import start_query
from vedette.pipeline.queries.window_rows import RowKind, SelectWindowRows
from vedette.pipeline.schema import WINDOW_EVENTS, WINDOW_ROWS, spark_schema
from vedette.pipeline.task import PipelineConfig, Task
from vedette.sources.images import decode_image, encode_image
from vedette.subscriptions.windows.state_codec import STATE_VERSION, decode_state, encode_state
from vedette.subscriptions.windows.windowed_subscriptions import watch_of_json
from vedette.subscriptions.windows.windowed_watch import WindowChange, WindowedWatch, WindowEvent
from vedette.transport.ingest_messages import WindowResult
from vedette.values import timestamp_from_ms

__all__ = [
    "WINDOW_COUNTS_METRIC",
    "DeliverWindowEvents",
    "WindowProcessor",
    "apply_rows",
    "start_windows_query",
]

log = logging.getLogger(__name__)
QUERY_NAME = "vedette-windows"
_OPERATOR = 2
"""Spark refuses to read the state of another operator. 1: applyInPandasWithState; 2: transformWithState."""
CHECKPOINT_FORMAT = 10_000 * _OPERATOR + 100 * OFFSET_FORMAT + STATE_VERSION
"""Changes with the operator, the format of the offsets, and the version of the state."""
WINDOW_COUNTS_METRIC = "windows"
"""Name of the observed metrics in the progress of the query."""
_COUNTS = pa.schema([("window_events", pa.int64()), ("late", pa.int64()), ("undeliverable", pa.int64())])


def start_windows_query(
    spark: SparkSession,
    config: PipelineConfig,
    checkpoint: Path,
    *,
    start: int | None = None,
    lateness_ms: int = 500,
) -> StreamingQuery:
    """Start the query. A window stays open for `lateness_ms` after its end, for changes that arrive late."""
    spark.dataSource.register(JournalDataSource)
    if delete_other_format(checkpoint, CHECKPOINT_FORMAT):
        log.warning(
            "The state of windows was written by another release: all windows start again",
            extra={"action": "windows.rebuild"},
        )
    first = initial_offset(checkpoint, config.journal_url, start, format=CHECKPOINT_FORMAT)
    changes = (
        spark.readStream.format(JournalDataSource.name())
        .options(**journal_options(config, start=first, shares=1, lateness_ms=lateness_ms))
        .load()
    )
    rows = changes.mapInArrow(SelectWindowRows(config), spark_schema(WINDOW_ROWS))
    # The watermark is in the offset, so neither timers nor Spark's watermark are needed, and late rows are kept.
    events = rows.groupBy("subscription").transformWithState(
        WindowProcessor(), spark_schema(WINDOW_EVENTS), outputMode="append", timeMode="None"
    )
    counts = events.mapInArrow(DeliverWindowEvents(config), spark_schema(_COUNTS))
    return start_query(
        spark,
        QUERY_NAME,
        counts.observe(WINDOW_COUNTS_METRIC, *[sum_(name).alias(name) for name in _COUNTS.names])
        .writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="0 seconds"),
    )


# --- the state of one subscription ---------------------------------------------------------------------------------


class WindowProcessor(StatefulProcessor):
    """Keeps the state of one subscription per key. Spark calls it once per batch and key that has rows."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("state", "state binary")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002
        stored = bytes(self._state.get()[0]) if self._state.exists() else None  # type: ignore[index]
        state, events = apply_rows(key[0], [row.asDict() for row in rows], stored)
        if state is None:
            self._state.clear()
        else:
            self._state.update((state,))
        yield from (Row(**event) for event in events)

    def close(self) -> None: ...


def apply_rows(
    subscription: int, rows: list[dict[str, Any]], stored: bytes | None
) -> tuple[bytes | None, list[dict[str, Any]]]:
    """Apply the rows of one subscription in one batch to its stored state.

    Return the new state, or None if the subscription has ended, and the events of the windows that ended
    (WINDOW_EVENTS). The last event row has position 0; it only counts the late changes of the batch.
    """
    rows = sorted(rows, key=lambda row: (row["kind"], -1 if row["offset"] is None else row["offset"]))
    last = rows[-1]
    if last["kind"] == RowKind.REMOVED:
        return None, []
    collection_watch, created = watch_of_json(last["spec"]), timestamp_from_ms(last["created_ms"])
    state = decode_state(stored, collection_watch, created) if stored is not None else None
    watch = WindowedWatch(collection_watch, created, state)
    late_before = watch.late
    snapshot = [row for row in rows if row["kind"] == RowKind.SNAPSHOT]
    for collection in dict.fromkeys(row["collection"] for row in snapshot):
        own = [row for row in snapshot if row["collection"] == collection]
        documents = [(row["key"], image) for row in own if (image := _image(row["after"])) is not None]
        watch.load_snapshot(collection, own[0]["offset"], documents)
    events: list[WindowEvent] = []
    for row in rows:
        if row["kind"] == RowKind.CHANGE:
            watch.apply(_change(row))
        elif row["kind"] == RowKind.WATERMARK:
            events += watch.advance(timestamp_from_ms(row["time_ms"]))
    common = {"subscription": subscription, "gateway": last["gateway"]}
    found = [
        {**common, "position": event.position, "payload": _encode_window_event(event), "late": 0}
        for event in events
    ]
    found.append({**common, "position": 0, "payload": b"", "late": watch.late - late_before})
    return encode_state(watch.state), found


def _image(data: bytes | bytearray | None) -> dict[str, Any] | None:
    """Decode an image. Spark's rows have byte arrays."""
    return decode_image(bytes(data)) if data is not None else None


def _change(row: dict[str, Any]) -> WindowChange:
    return WindowChange(
        offset=row["offset"],
        partition=row["partition"],
        time_ms=row["time_ms"],
        appended_ms=row["appended_ms"],
        collection=row["collection"],
        key=row["key"],
        before=_image(row["before"]),
        after=_image(row["after"]),
    )


def _encode_window_event(event: WindowEvent) -> bytes:
    """Encode an event. An event that is too large or nested too deep is replaced by the number of dropped matches.

    Raising here would fail the batch and every retry, and end the windows of all subscriptions.
    """
    fields = {"type": event.type, "window_start": event.start, "window_end": event.end}
    content: dict[str, Any] = {"match": event.match, "prev": event.prev, "matches": event.matches}
    content |= {"events": event.events, "dropped": event.dropped or None}
    try:
        return encode_image(fields | {name: value for name, value in content.items() if value is not None})
    except SourceError as error:
        extra = {"action": "window.dropped", "position": event.position}
        log.warning("The result of a window is too large and is dropped: %s", error, extra=extra)
        dropped = event.dropped + len(event.events or event.matches or (event.match,))
        return encode_image(fields | {"dropped": dropped})


# --- delivery ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DeliverWindowEvents:
    """Runs once per Spark task: send window events to the gateways and wait until they are accepted."""

    config: PipelineConfig

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = Task.start(self.config)
        for batch in batches:
            rows = batch.to_pylist()
            by_gateway: dict[int, list[WindowResult]] = {}
            for row in rows:
                if row["position"]:
                    result = WindowResult(
                        subscription=row["subscription"], position=row["position"], payload=row["payload"]
                    )
                    by_gateway.setdefault(row["gateway"], []).append(result)
            outbox = task.window_outbox()
            outbox.send(by_gateway)
            sent = len(outbox)
            undeliverable = outbox.flush()
            counts = {
                "window_events": sent - undeliverable,
                "late": sum(row["late"] for row in rows),
                "undeliverable": undeliverable,
            }
            yield pa.RecordBatch.from_pylist([counts], schema=_COUNTS)

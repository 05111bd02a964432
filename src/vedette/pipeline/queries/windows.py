"""Windows over collections, on Spark: a query of its own beside the hot path, with its state in Spark's state store.

    journal ─▶ select rows (Arrow, in the workers) ─▶ group by subscription ─▶ fold (state) ─▶ deliver ─▶ gateways

The meaning is in `subscriptions.windows.windowed_watch`, which knows nothing of Spark. Here is what makes it survive: a
batch is a range of the journal with a version of the index and a *watermark*, all three in the offset, so a batch that
runs again ends the same windows; the state of a subscription is one value in the state store, which commits with the
batch; what a window told has a position, by which gateways know repeats.

Nothing runs while nobody has a window: the source stands still, and when one comes it begins at its boundary.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.functions import sum as sum_
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupState

from vedette.errors import SourceError
from vedette.pipeline.checkpoint import initial_offset
from vedette.pipeline.datasource import JournalSource
from vedette.pipeline.deduplicate import deduplicate
from vedette.pipeline.deliver import deliver_windows
from vedette.pipeline.match import DecodedBatch
from vedette.pipeline.normalize import normalize
from vedette.pipeline.queries.query_start import start_query
from vedette.pipeline.schema import PROGRESS, WINDOW_EVENTS, WINDOW_ROWS, spark_schema
from vedette.pipeline.sequence import sequence
from vedette.pipeline.task import PipelineConfig
from vedette.sources.images import decode_image, encode_image
from vedette.sources.journal.seam import open_journal
from vedette.subscriptions.index.change_batch import DocumentChange, ImageBatch
from vedette.subscriptions.index.matcher import ENTER, LEAVE, Matches, match_segments, redact_by_mask
from vedette.subscriptions.index.segment import worker_cache
from vedette.subscriptions.index.versions import open_version
from vedette.subscriptions.spec import shape_of_spec
from vedette.subscriptions.windows.windowed_subscriptions import (
    WindowedSubscription,
    watch_of_json,
    windowed_subscriptions,
)
from vedette.subscriptions.windows.windowed_watch import (
    Document,
    WindowChange,
    WindowedWatch,
    WindowEvent,
    window_ends_between,
)
from vedette.transport.ingest_messages import WindowResult
from vedette.values import timestamp_from_ms, timestamp_to_ms

__all__ = ["WINDOW_COUNTS_METRIC", "process_windows", "select_window_rows", "start_windows_query"]

SNAPSHOT, CHANGE, TICK, GONE = range(4)
"""Kinds of rows, in the order in which they count."""
WINDOW_COUNTS_METRIC = "windows"
_PAGE = 1_000
log = logging.getLogger(__name__)
_FOREVER = 2**62
_OUTCOME = pa.schema([("told", pa.int64()), ("late", pa.int64()), ("undeliverable", pa.int64())])


def start_windows_query(
    session: SparkSession,
    context: PipelineConfig,
    checkpoint: Path,
    *,
    start: int | None = None,
    lateness_ms: int = 500,
) -> StreamingQuery:
    """Start the query. `lateness_ms`: so long a window stays open after its end, for what is still on its way."""
    session.dataSource.register(JournalSource)
    options = {
        "journal": context.journal_url,
        "index": str(context.index_folder),
        "start": str(initial_offset(checkpoint, context.journal_url, start)),
        "shares": "1",
        "windows": str(lateness_ms),
    }
    rows = (
        session.readStream.format(JournalSource.name())
        .options(**options)
        .load()
        .mapInArrow(select_window_rows(context), spark_schema(WINDOW_ROWS))
    )
    told = rows.groupBy("subscription").applyInPandasWithState(
        process_windows, spark_schema(WINDOW_EVENTS), "held binary", "append", "NoTimeout"
    )
    outcomes = told.mapInArrow(_deliver_window_events(context), spark_schema(_OUTCOME))
    return start_query(
        outcomes.observe(WINDOW_COUNTS_METRIC, *[sum_(field.name).alias(field.name) for field in _OUTCOME])
        .writeStream.format("noop")
        .queryName(f"vedette {checkpoint.name}")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="0 seconds")
    )


# --- what concerns windows ---------------------------------------------------------------------------------------


def select_window_rows(
    context: PipelineConfig,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Changes for windowed subscriptions, and at the end of a range: snapshots of new ones, and whose window ends."""

    def through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            marks = pc.equal(batch["op"], PROGRESS)
            changes = batch.filter(pc.invert(marks))
            if changes.num_rows:
                yield _batch(_changed(changes, context))
            for mark in batch.filter(marks).to_pylist():
                yield _batch(_rows_at_range_end(mark, context))

    return through


def _batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=WINDOW_ROWS)


def _row(subscription: WindowedSubscription, kind: int, **more: Any) -> dict[str, Any]:
    return {
        "subscription": subscription.state_owner,
        "gateway": subscription.gateway,
        "form": subscription.form,
        "created_ms": timestamp_to_ms(subscription.created),
        "kind": kind,
        **more,
    }


def _changed(batch: pa.RecordBatch, context: PipelineConfig) -> list[dict[str, Any]]:
    worker_cache.max_bytes = context.max_mapped_index_bytes
    for stage in (normalize, deduplicate, sequence):
        batch = stage(batch, context)
    decoded, found = DecodedBatch(batch), []
    columns = {
        name: batch[name].to_pylist() for name in ("partition", "time_ms", "appended_ms", "before", "after")
    }
    for tenant, collection, version, newer_than, rows in decoded.groups():
        windowed = windowed_subscriptions(context.index_folder, version)
        if not any((each.tenant, each.collection) == (tenant, collection) for each in windowed.values()):
            continue
        segments, ended = open_version(context.index_folder, version).collection(tenant, collection)
        images = ImageBatch(tenant, collection, [decoded.changes[row] for row in rows])
        matches = match_segments(segments, ended, images, newer_than=newer_than)
        for number, match in enumerate(matches):
            subscription = windowed.get(match.subscription)
            if subscription is None:
                continue
            place, change = rows[match.change], decoded.changes[rows[match.change]]
            found.append(
                _row(
                    subscription,
                    CHANGE,
                    offset=change.offset,
                    partition=columns["partition"][place],
                    time_ms=columns["time_ms"][place],
                    appended_ms=columns["appended_ms"][place],
                    collection=collection,
                    key=change.key,
                    before=_visible_image(matches, number, LEAVE, columns["before"][place], change.before),
                    after=_visible_image(matches, number, ENTER, columns["after"][place], change.after),
                )
            )
    return found


def _visible_image(
    matches: Matches, number: int, side: int, image: bytes | None, document: Document | None
) -> bytes | None:
    """An image as far as a match is about it, and as policies show it to the subscriber."""
    if document is None or not matches.transition[number] & side:
        return None
    hidden = matches.hidden_before if side == LEAVE else matches.hidden_after
    if not hidden[number]:
        return image
    shape = shape_of_spec(matches.forms[int(matches.shape[number])])
    return encode_image(dict(redact_by_mask(shape, document, int(hidden[number]))))


def _rows_at_range_end(mark: dict[str, Any], context: PipelineConfig) -> list[dict[str, Any]]:
    """`newer_than` of a mark is the version of the batch before; its times are the watermarks."""
    now = windowed_subscriptions(context.index_folder, mark["version"])
    before = windowed_subscriptions(context.index_folder, max(0, mark["newer_than"]))
    found = [_row(each, GONE) for number, each in before.items() if number not in now]
    for number, each in now.items():
        if number not in before and each.watch.aggregates:
            found += _snapshot(each, mark["version"], context)
        due = window_ends_between(each.watch, each.created, mark["appended_ms"], mark["time_ms"])
        if due and number == each.state_owner:
            found.append(_row(each, TICK, time_ms=mark["time_ms"]))
    return found


def _snapshot(
    subscription: WindowedSubscription, version: int, context: PipelineConfig
) -> list[dict[str, Any]]:
    """Documents that match now. They are true at one offset only together: a page that is of another begins it anew."""
    journal = open_journal(context.journal_url)
    try:
        while True:
            found, offset, key = [], None, None
            while True:
                page = journal.snapshot(
                    subscription.tenant, subscription.collection, after_key=key, limit=_PAGE
                )
                if offset is not None and page.offset != offset:
                    break
                offset = page.offset
                found += _matching(subscription, version, page.documents, page.offset, context)
                if len(page.documents) < _PAGE:
                    # One row more says up to where it is true, also when nothing matches.
                    place = {"offset": page.offset, "collection": subscription.collection}
                    return [*found, _row(subscription, SNAPSHOT, **place)]
                key = page.documents[-1][0]
    finally:
        journal.close()


def _matching(
    subscription: WindowedSubscription,
    version: int,
    documents: tuple[tuple[str, bytes], ...],
    offset: int,
    context: PipelineConfig,
) -> list[dict[str, Any]]:
    segments, ended = open_version(context.index_folder, version).collection(
        subscription.tenant, subscription.collection
    )
    changes = [DocumentChange(_FOREVER, key, "create", None, decode_image(image)) for key, image in documents]
    images = ImageBatch(subscription.tenant, subscription.collection, changes)
    matches = match_segments(segments, ended, images)
    return [
        _row(
            subscription,
            SNAPSHOT,
            offset=offset,
            collection=subscription.collection,
            key=documents[match.change][0],
            after=_visible_image(
                matches, number, ENTER, documents[match.change][1], changes[match.change].after
            ),
        )
        for number, match in enumerate(matches)
        if match.subscription == subscription.number
    ]


# --- the state of one subscription ---------------------------------------------------------------------------------


def process_windows(
    key: tuple[int], frames: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """Rows of one subscription, in a batch, onto its state; what its windows tell."""
    rows = [row for frame in frames for row in frame.to_dict("records")]
    rows.sort(key=lambda row: (row["kind"], _number(row["offset"])))
    (number,), last = key, rows[-1]
    if last["kind"] == GONE:
        state.remove()
        return
    held = pickle.loads(state.get[0]) if state.exists else None  # noqa: S301 - our own, from the state store
    watch = WindowedWatch(watch_of_json(last["form"]), timestamp_from_ms(int(last["created_ms"])), held)
    late = watch.late
    snapshot = [row for row in rows if row["kind"] == SNAPSHOT]
    for collection in dict.fromkeys(row["collection"] for row in snapshot):
        own = [row for row in snapshot if row["collection"] == collection]
        documents = [(row["key"], decode_image(row["after"])) for row in own if _is(row["after"])]
        watch.load_snapshot(collection, int(own[0]["offset"]), documents)
    told: list[WindowEvent] = []
    for row in rows:
        if row["kind"] == CHANGE:
            watch.apply(_change(row))
        elif row["kind"] == TICK:
            told += watch.advance(timestamp_from_ms(int(row["time_ms"])))
    state.update((pickle.dumps(watch.state),))
    yield pd.DataFrame(
        {
            "subscription": [number] * (len(told) + 1),
            "gateway": [int(last["gateway"])] * (len(told) + 1),
            "position": [*(event.position for event in told), 0],
            "payload": [*map(_encode_window_event, told), b""],
            "late": [0] * len(told) + [watch.late - late],
        }
    )


def _is(value: Any) -> bool:
    return isinstance(value, bytes)


def _number(value: Any) -> int:
    return int(value) if value is not None and value == value else -1  # noqa: PLR0124 - pandas has NaN for null


def _change(row: dict[str, Any]) -> WindowChange:
    before, after = (decode_image(row[name]) if _is(row[name]) else None for name in ("before", "after"))
    return WindowChange(
        offset=int(row["offset"]),
        partition=int(row["partition"]),
        time_ms=int(row["time_ms"]),
        appended_ms=int(row["appended_ms"]),
        collection=row["collection"],
        key=row["key"],
        before=before,
        after=after,
    )


def _encode_window_event(event: WindowEvent) -> bytes:
    """What cannot be told, since it is too large or nested too deep, is counted as dropped: failing here would end the
    windows of everybody, for ever."""
    fields = {"type": event.type, "window_start": event.start, "window_end": event.end}
    more: dict[str, Any] = {"match": event.match, "prev": event.prev, "matches": event.matches}
    more |= {"events": event.events, "dropped": event.dropped or None}
    try:
        return encode_image(fields | {name: value for name, value in more.items() if value is not None})
    except SourceError as error:
        extra = {"action": "window.dropped", "position": event.position}
        log.warning("The result of a window is too large and is dropped: %s", error, extra=extra)
        dropped = event.dropped + len(event.events or event.matches or (event.match,))
        return encode_image(fields | {"dropped": dropped})


# --- to the gateways -------------------------------------------------------------------------------------------------


def _deliver_window_events(
    context: PipelineConfig,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = batch.to_pylist()
            by_gateway: dict[int, list[WindowResult]] = {}
            for row in rows:
                if row["position"]:
                    told = WindowResult(
                        subscription=row["subscription"], position=row["position"], payload=row["payload"]
                    )
                    by_gateway.setdefault(row["gateway"], []).append(told)
            lost = deliver_windows(by_gateway, context)
            count = sum(map(len, by_gateway.values()))
            outcome = {"told": count - lost, "late": sum(row["late"] for row in rows), "undeliverable": lost}
            yield pa.RecordBatch.from_pylist([outcome], schema=_OUTCOME)

    return through

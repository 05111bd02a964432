"""Select the rows that concern windowed subscriptions: changes, snapshots and window ends.

`SelectWindowRows` runs in the workers, before Spark groups the rows by subscription. For each windowed subscription
that a change matches it returns one row. At the end of a range it adds the rows that belong to the whole range: the
snapshots of new subscriptions, the watermark of subscriptions whose window ends, and the removal of ended ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import pyarrow as pa

from vedette.pipeline.deduplicate import deduplicate
from vedette.pipeline.match import DecodedBatch
from vedette.pipeline.normalize import normalize
from vedette.pipeline.schema import WINDOW_ROWS, RangeEnd, split_range_end
from vedette.pipeline.sequence import sequence
from vedette.pipeline.task import PipelineConfig, Task
from vedette.pipeline.worker_cache import journals
from vedette.sources.images import decode_image, encode_image
from vedette.subscriptions.index.change_batch import DocumentChange, ImageBatch
from vedette.subscriptions.index.matcher import ENTER, LEAVE, Matches, match_segments, redact_by_mask
from vedette.subscriptions.index.versions import open_version
from vedette.subscriptions.spec import shape_of_spec
from vedette.subscriptions.windows.windowed_subscriptions import WindowedSubscription, windowed_subscriptions
from vedette.subscriptions.windows.windowed_watch import Document, window_ends_between
from vedette.values import timestamp_to_ms

__all__ = ["RowKind", "SelectWindowRows"]

_PAGE_DOCUMENTS = 1_000
"""Documents of one page of a snapshot."""
_AFTER_EVERY_BOUNDARY = 2**62
"""Offset of the documents of a snapshot: they match subscriptions with any boundary."""


class RowKind(IntEnum):
    """Kinds of rows, in the order in which the rows of one batch apply."""

    SNAPSHOT = 0
    CHANGE = 1
    WATERMARK = 2
    REMOVED = 3


@dataclass(frozen=True)
class SelectWindowRows:
    """Runs once per Spark task: journal rows in, WINDOW_ROWS out."""

    config: PipelineConfig

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = Task.start(self.config)
        for batch in batches:
            changes, range_end = split_range_end(batch)
            if changes.num_rows:
                yield _to_batch(_change_rows(changes, task))
            if range_end is not None:
                yield _to_batch(_rows_at_range_end(range_end, self.config))


def _to_batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=WINDOW_ROWS)


def _row(subscription: WindowedSubscription, kind: RowKind, **columns: Any) -> dict[str, Any]:
    return {
        "subscription": subscription.state_owner,
        "gateway": subscription.gateway,
        "spec": subscription.spec,
        "created_ms": timestamp_to_ms(subscription.created),
        "kind": int(kind),
        **columns,
    }


def _change_rows(batch: pa.RecordBatch, task: Task) -> list[dict[str, Any]]:
    """Return one row per change and windowed subscription that it matches."""
    for stage in (normalize, deduplicate, sequence):
        batch = stage(batch, task)
    index_folder = task.config.index_folder
    decoded, found = DecodedBatch(batch), []
    columns = {
        name: batch[name].to_pylist() for name in ("partition", "time_ms", "appended_ms", "before", "after")
    }
    for tenant, collection, version, newer_than, rows in decoded.groups():
        windowed = windowed_subscriptions(index_folder, version)
        if not any((each.tenant, each.collection) == (tenant, collection) for each in windowed.values()):
            continue
        segments, ended = open_version(index_folder, version).collection(tenant, collection)
        images = ImageBatch(tenant, collection, [decoded.changes[row] for row in rows])
        matches = match_segments(segments, ended, images, newer_than=newer_than)
        for number, match in enumerate(matches):
            subscription = windowed.get(match.subscription)
            if subscription is None:
                continue
            row, change = rows[match.change], decoded.changes[rows[match.change]]
            found.append(
                _row(
                    subscription,
                    RowKind.CHANGE,
                    offset=change.offset,
                    partition=columns["partition"][row],
                    time_ms=columns["time_ms"][row],
                    appended_ms=columns["appended_ms"][row],
                    collection=collection,
                    key=change.key,
                    before=_visible_image(matches, number, LEAVE, columns["before"][row], change.before),
                    after=_visible_image(matches, number, ENTER, columns["after"][row], change.after),
                )
            )
    return found


def _visible_image(
    matches: Matches, number: int, side: int, image: bytes | None, document: Document | None
) -> bytes | None:
    """Return the image that the subscriber may see; None if the match does not concern this side of the change."""
    if document is None or not matches.transition[number] & side:
        return None
    hidden = matches.hidden_before if side == LEAVE else matches.hidden_after
    if not hidden[number]:
        return image
    shape = shape_of_spec(matches.specs[int(matches.shape[number])])
    return encode_image(dict(redact_by_mask(shape, document, int(hidden[number]))))


def _rows_at_range_end(range_end: RangeEnd, config: PipelineConfig) -> list[dict[str, Any]]:
    """Return removals, the snapshots of new subscriptions, and watermarks for those whose window ends."""
    now = windowed_subscriptions(config.index_folder, range_end.index_version)
    before = windowed_subscriptions(config.index_folder, max(0, range_end.previous_index_version))
    found = [_row(each, RowKind.REMOVED) for number, each in before.items() if number not in now]
    for number, each in now.items():
        if number not in before and each.watch.aggregates:
            found += _snapshot_rows(each, range_end.index_version, config)
        due = window_ends_between(
            each.watch, each.created, range_end.watermark_before_ms, range_end.watermark_after_ms
        )
        if due and number == each.state_owner:
            found.append(_row(each, RowKind.WATERMARK, time_ms=range_end.watermark_after_ms))
    return found


def _snapshot_rows(
    subscription: WindowedSubscription, version: int, config: PipelineConfig
) -> list[dict[str, Any]]:
    """Return the documents that match now, all at one journal offset.

    A page with another offset than the first one restarts the snapshot, because pages are consistent only together.
    """
    journal = journals(config.journal_url)
    while True:
        found, offset, key = [], None, None
        while True:
            page = journal.snapshot(
                subscription.tenant, subscription.collection, after_key=key, limit=_PAGE_DOCUMENTS
            )
            if offset is not None and page.offset != offset:
                break
            offset = page.offset
            found += _matching_rows(subscription, version, page.documents, page.offset, config)
            if len(page.documents) < _PAGE_DOCUMENTS:
                # The last row has no document. It carries the offset of the snapshot, also if nothing matches.
                last = {"offset": page.offset, "collection": subscription.collection}
                return [*found, _row(subscription, RowKind.SNAPSHOT, **last)]
            key = page.documents[-1][0]


def _matching_rows(
    subscription: WindowedSubscription,
    version: int,
    documents: tuple[tuple[str, bytes], ...],
    offset: int,
    config: PipelineConfig,
) -> list[dict[str, Any]]:
    segments, ended = open_version(config.index_folder, version).collection(
        subscription.tenant, subscription.collection
    )
    changes = [
        DocumentChange(_AFTER_EVERY_BOUNDARY, key, "create", None, decode_image(image))
        for key, image in documents
    ]
    images = ImageBatch(subscription.tenant, subscription.collection, changes)
    matches = match_segments(segments, ended, images)
    return [
        _row(
            subscription,
            RowKind.SNAPSHOT,
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

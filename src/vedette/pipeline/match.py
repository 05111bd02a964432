"""Stage 4: find the subscriptions of each change, with the index version pinned by the batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vedette.clock import SystemClock
from vedette.errors import SourceError
from vedette.pipeline.schema import DELIVERIES
from vedette.pipeline.task import PipelineConfig
from vedette.pipeline.telemetry import note_changes, note_match, note_shed, note_time
from vedette.sources.images import decode_image, decode_images
from vedette.subscriptions.collection_watch import CollectionWatch
from vedette.subscriptions.index.change_batch import DocumentChange, ImageBatch
from vedette.subscriptions.index.columns import Bools, Ints
from vedette.subscriptions.index.matcher import ENTER, LEAVE, UPDATE, Matches, match_segments
from vedette.subscriptions.index.segment import LOW_PRIORITY, Segment, worker_cache
from vedette.subscriptions.index.versions import open_version
from vedette.subscriptions.spec import SubscriptionSpec, shape_of_spec, watch_of_spec
from vedette.transport.sampled_log import LARGE_MATCH_COUNT, SLOW_FILTER_MS, log_sampled
from vedette.watch.delta import values_equal

__all__ = ["DecodedBatch", "match"]

_clock = SystemClock()
_KEPT = [field.name for field in DELIVERIES][:14]


def match(batch: pa.RecordBatch, context: PipelineConfig) -> pa.RecordBatch:
    """One row per change and gateway. Rows with a problem are passed on, so that it is reported."""
    begin = _clock.monotonic()
    worker_cache.max_bytes = context.max_mapped_index_bytes
    decoded = DecodedBatch(batch)
    groups: list[tuple[Ints, Matches]] = []
    shed = batch["shed"].to_numpy(zero_copy_only=False)
    for tenant, collection, version, newer_than, rows in decoded.groups():
        held = open_version(context.index_folder, version).collection(tenant, collection)
        for part, images, found in _matched(decoded, (tenant, collection), held, newer_than, rows):
            note_match(found.counts)
            _remark(found, images)
            places = np.array(part, np.int64)
            groups.append((places, _visible(_unshed(found, shed[places]), images)))
    note_changes(int(np.count_nonzero(batch["newer_than"].to_numpy() < 0)))
    note_time((_clock.monotonic() - begin) * 1000)
    return _deliveries(batch, decoded.problems, groups)


def _matched(
    decoded: DecodedBatch,
    name: tuple[str, str],
    held: tuple[list[Segment], Ints],
    newer_than: int,
    rows: list[int],
) -> Iterator[tuple[list[int], ImageBatch, Matches]]:
    """Match some rows. A row that cannot be matched is found by bisection and set aside.

    Without this, one malformed document would fail its task and every retry.
    """
    images = ImageBatch(*name, [decoded.changes[row] for row in rows])
    try:
        yield rows, images, match_segments(*held, images, newer_than=newer_than)
    except Exception as problem:
        if len(rows) == 1:
            decoded.problems[rows[0]] = f"it cannot be matched: {type(problem).__name__}: {problem}"[:300]
            return
        middle = len(rows) // 2
        for half in (rows[:middle], rows[middle:]):
            yield from _matched(decoded, name, held, newer_than, half)


class DecodedBatch:
    """The changes of a batch, each image decoded once; undecodable images are problems."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self.problems: list[str | None] = batch["problem"].to_pylist()
        offsets, keys, ops, before, after = (
            batch[name].to_pylist() for name in ("offset", "key", "op", "before", "after")
        )
        images = zip(self._images(before), self._images(after), strict=True)
        self.changes = [
            DocumentChange(offset, key, op, *pair)
            for offset, key, op, pair in zip(offsets, keys, ops, images, strict=True)
        ]

    def _images(self, images: list[bytes | None]) -> list[dict[str, Any] | None]:
        """Decode all at once; one by one only if one is invalid, to find it."""
        present = [
            row for row, image in enumerate(images) if image is not None and self.problems[row] is None
        ]
        found: list[dict[str, Any] | None] = [None] * len(images)
        try:
            documents = decode_images([images[row] or b"" for row in present])
        except SourceError:
            for row in present:
                found[row] = self._image(row, images[row] or b"")
            return found
        if len(documents) == len(images):
            return list(documents)
        for row, document in zip(present, documents, strict=True):
            found[row] = document
        return found

    def _image(self, row: int, image: bytes) -> dict[str, Any] | None:
        try:
            return decode_image(image)
        except SourceError as error:
            self.problems[row] = error.text
            return None

    def groups(self) -> Iterator[tuple[str, str, int, int, list[int]]]:
        """Rows grouped by tenant, collection, version and backfill."""
        names = ("tenant", "collection", "version", "newer_than")
        if not any(self.problems) and all(
            pc.count_distinct(self._batch[name]).as_py() == 1 for name in names
        ):
            tenant, collection, version, newer_than = (self._batch[name][0].as_py() for name in names)
            yield tenant, collection, version, newer_than, list(range(len(self.problems)))
            return
        found: dict[tuple[Any, ...], list[int]] = {}
        for row, group in enumerate(zip(*(self._batch[name].to_pylist() for name in names), strict=True)):
            if self.problems[row] is None:
                found.setdefault(group, []).append(row)
        for (tenant, collection, version, newer_than), rows in found.items():
            yield tenant, collection, version, newer_than, rows


def _remark(found: Matches, images: ImageBatch) -> None:
    """Log slow filters and large match sets."""
    for spent, form in found.counts.times:
        if spent > SLOW_FILTER_MS:
            text = f"A filter over {images.collection} took {spent:.0f} ms for one batch"
            log_sampled("match.slow", form.decode(), text, milliseconds=spent)
    if len(found) >= LARGE_MATCH_COUNT:
        change, count = max(Counter(found.change.tolist()).items(), key=lambda item: item[1])
        if count >= LARGE_MATCH_COUNT:
            text = f"A change of {images.collection} matched {count} subscriptions"
            log_sampled("match.large", images.collection, text, key=images.changes[change].key, count=count)


def _unshed(found: Matches, shed: Bools) -> Matches:
    """Drop subscriptions of low priority where the partition lags."""
    if not shed.any():
        return found
    passed_over = shed[found.change] & ((found.flags & LOW_PRIORITY) != 0)
    note_shed(int(np.count_nonzero(passed_over)))
    return found.take(np.flatnonzero(~passed_over))


def _visible(found: Matches, images: ImageBatch) -> Matches:
    """Drop windowed watches, and updates that do not change the row of a WATCH's RETURN.

    Attributes hidden by policies are already dropped by the index.
    """
    watches = {place: watch for place, text in enumerate(found.forms) if (watch := _watch(text)) is not None}
    if not watches:
        return found
    windowed = [place for place, watch in watches.items() if watch.windowed]
    if windowed:  # delivered by the windows query
        found = found.take(np.flatnonzero(~np.isin(found.shape, windowed)))
    whole = [place for place in watches if not shape_of_spec(found.forms[place]).attribute_masks]
    doubtful = np.flatnonzero((found.transition == UPDATE) & np.isin(found.shape, whole))
    seen: dict[tuple[int, int], bool] = {}
    hidden = []
    for row in doubtful.tolist():
        pair = int(found.change[row]), int(found.shape[row])
        if pair not in seen:
            seen[pair] = _differs(watches[pair[1]], images.changes[pair[0]])
        if not seen[pair]:
            hidden.append(row)
    return found.take(np.delete(np.arange(len(found)), hidden))


@lru_cache(maxsize=4096)
def _watch(form: bytes) -> CollectionWatch | None:
    return watch_of_spec(msgspec.json.decode(form, type=SubscriptionSpec))


def _differs(watch: CollectionWatch, change: DocumentChange) -> bool:
    if change.before is None or change.after is None:
        return True
    return not values_equal(watch.row(change.key, change.before), watch.row(change.key, change.after))


def _deliveries(
    batch: pa.RecordBatch, problems: list[str | None], groups: Sequence[tuple[Ints, Matches]]
) -> pa.RecordBatch:
    """One row per change and gateway, in batch order; subscriptions as lists."""
    nothing = np.empty(0, np.int64)
    rows = np.concatenate([nothing, *(places[found.change] for places, found in groups)])
    gateways = np.concatenate([np.empty(0, np.int32), *(found.gateway for _, found in groups)])
    reasons = np.concatenate([np.empty(0, np.uint8), *(found.transition for _, found in groups)])
    numbers = np.concatenate([nothing, *(found.number for _, found in groups)])
    poisoned = np.array([row for row, problem in enumerate(problems) if problem is not None], np.int64)
    rows = np.concatenate([rows, poisoned])
    gateways = np.concatenate([gateways, np.full(len(poisoned), -1, np.int32)])
    order = np.lexsort((gateways, rows))
    rows, gateways = rows[order], gateways[order]
    starts = np.flatnonzero(
        np.concatenate(([True], (rows[1:] != rows[:-1]) | (gateways[1:] != gateways[:-1])))
    )
    starts = starts if len(rows) else nothing
    reasons = np.concatenate([reasons, np.zeros(len(poisoned), np.uint8)])[order]
    numbers = np.concatenate([numbers, np.zeros(len(poisoned), np.int64)])[order]
    chosen = batch.take(pa.array(rows[starts]))
    arrays = [chosen[name] for name in _KEPT]
    arrays.append(pa.array(problems, pa.string()).take(pa.array(rows[starts])))
    arrays.append(pa.array(gateways[starts], pa.int32()))
    arrays.extend(_lists(numbers, reasons == kind, starts) for kind in (ENTER, UPDATE, LEAVE))
    arrays.append(pa.nulls(len(starts), pa.string()))
    arrays.append(pa.array(np.zeros(len(starts), np.bool_)))
    return pa.RecordBatch.from_arrays(arrays, schema=DELIVERIES)


def _lists(numbers: Ints, chosen: Bools, starts: Ints) -> pa.ListArray:
    """The selected numbers of each run that starts at one of `starts`."""
    before = np.concatenate(([0], np.cumsum(chosen)))
    offsets = before[np.concatenate((starts, [len(numbers)]))]
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(numbers[chosen], pa.int64()))

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
from vedette.pipeline.schema import CHANGE_ROWS, DELIVERIES
from vedette.pipeline.task import Counters, Task
from vedette.sources.images import decode_image, decode_images
from vedette.subscriptions.collection_watch import CollectionWatch
from vedette.subscriptions.index.change_batch import DocumentChange, ImageBatch
from vedette.subscriptions.index.columns import Bools, Ints
from vedette.subscriptions.index.matcher import ENTER, LEAVE, UPDATE, Matches, match_segments
from vedette.subscriptions.index.segment import Segment
from vedette.subscriptions.index.versions import open_version
from vedette.subscriptions.registry.records import LOW_PRIORITY
from vedette.subscriptions.spec import SubscriptionSpec, shape_of_spec, watch_of_spec
from vedette.transport.sampled_log import LARGE_MATCH_COUNT, SLOW_FILTER_MS, log_sampled
from vedette.watch.delta import values_equal

__all__ = ["DecodedBatch", "match"]

_clock = SystemClock()
KEPT_COLUMNS = [name for name in DELIVERIES.names if name in CHANGE_ROWS.names]
"""Columns of a change that its deliveries have too."""


def match(batch: pa.RecordBatch, task: Task) -> pa.RecordBatch:
    """Return one row per change and gateway. Rows with a problem are passed on, so that `deliver` quarantines them."""
    start = _clock.monotonic()
    decoded = DecodedBatch(batch)
    groups: list[tuple[Ints, Matches]] = []
    shed = batch["shed"].to_numpy(zero_copy_only=False)
    for tenant, collection, version, newer_than, rows in decoded.groups():
        index = open_version(task.config.index_folder, version).collection(tenant, collection)
        for part, images, matches in _match_rows(decoded, (tenant, collection), index, newer_than, rows):
            task.counters.add_match(matches.counts)
            _log_slow_and_large(matches, images)
            batch_rows = np.array(part, np.int64)
            kept = _drop_low_priority(matches, shed[batch_rows], task.counters)
            groups.append((batch_rows, _drop_invisible_updates(kept, images)))
    task.counters.changes += int(np.count_nonzero(batch["newer_than"].to_numpy() < 0))
    task.counters.match_ms += (_clock.monotonic() - start) * 1000
    return _group_by_gateway(batch, decoded.problems, groups)


def _match_rows(
    decoded: DecodedBatch,
    name: tuple[str, str],
    index: tuple[list[Segment], Ints],
    newer_than: int,
    rows: list[int],
) -> Iterator[tuple[list[int], ImageBatch, Matches]]:
    """Match some rows. A row that cannot be matched is found by bisection and gets a problem.

    Without this, one malformed document would fail its task and every retry.
    """
    images = ImageBatch(*name, [decoded.changes[row] for row in rows])
    try:
        yield rows, images, match_segments(*index, images, newer_than=newer_than)
    except Exception as problem:
        if len(rows) == 1:
            decoded.problems[rows[0]] = (
                f"the document cannot be matched: {type(problem).__name__}: {problem}"[:300]
            )
            return
        middle = len(rows) // 2
        for half in (rows[:middle], rows[middle:]):
            yield from _match_rows(decoded, name, index, newer_than, half)


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
        """Decode all images in one call. If that fails, decode them one by one to find the invalid one."""
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


def _log_slow_and_large(matches: Matches, images: ImageBatch) -> None:
    for milliseconds, spec in matches.counts.times:
        if milliseconds > SLOW_FILTER_MS:
            text = f"A filter over {images.collection} took {milliseconds:.0f} ms for one batch"
            log_sampled("match.slow", spec.decode(), text, milliseconds=milliseconds)
    if len(matches) >= LARGE_MATCH_COUNT:
        change, count = max(Counter(matches.change.tolist()).items(), key=lambda item: item[1])
        if count >= LARGE_MATCH_COUNT:
            text = f"A change of {images.collection} matched {count} subscriptions"
            log_sampled("match.large", images.collection, text, key=images.changes[change].key, count=count)


def _drop_low_priority(matches: Matches, shed: Bools, counters: Counters) -> Matches:
    """Drop subscriptions of low priority where the partition lags."""
    if not shed.any():
        return matches
    dropped = shed[matches.change] & ((matches.flags & LOW_PRIORITY) != 0)
    counters.shed += int(np.count_nonzero(dropped))
    return matches.take(np.flatnonzero(~dropped))


def _drop_invisible_updates(matches: Matches, images: ImageBatch) -> Matches:
    """Drop windowed watches, and updates that do not change the row of a WATCH's RETURN.

    The index has already dropped updates of attributes that policies hide.
    """
    watches = {
        shape: watch for shape, text in enumerate(matches.specs) if (watch := _watch(text)) is not None
    }
    if not watches:
        return matches
    windowed = [shape for shape, watch in watches.items() if watch.windowed]
    if windowed:  # the windows query delivers them
        matches = matches.take(np.flatnonzero(~np.isin(matches.shape, windowed)))
    unmasked = [shape for shape in watches if not shape_of_spec(matches.specs[shape]).attribute_masks]
    updates = np.flatnonzero((matches.transition == UPDATE) & np.isin(matches.shape, unmasked))
    differs: dict[tuple[int, int], bool] = {}
    invisible = []
    for row in updates.tolist():
        pair = int(matches.change[row]), int(matches.shape[row])
        if pair not in differs:
            differs[pair] = _differs(watches[pair[1]], images.changes[pair[0]])
        if not differs[pair]:
            invisible.append(row)
    return matches.take(np.delete(np.arange(len(matches)), invisible))


@lru_cache(maxsize=4096)
def _watch(spec: bytes) -> CollectionWatch | None:
    return watch_of_spec(msgspec.json.decode(spec, type=SubscriptionSpec))


def _differs(watch: CollectionWatch, change: DocumentChange) -> bool:
    if change.before is None or change.after is None:
        return True
    return not values_equal(watch.row(change.key, change.before), watch.row(change.key, change.after))


def _group_by_gateway(
    batch: pa.RecordBatch, problems: list[str | None], groups: Sequence[tuple[Ints, Matches]]
) -> pa.RecordBatch:
    """Return one row per change and gateway, in batch order, with lists of subscriptions."""
    none = np.empty(0, np.int64)
    rows = np.concatenate([none, *(batch_rows[matches.change] for batch_rows, matches in groups)])
    gateways = np.concatenate([np.empty(0, np.int32), *(matches.gateway for _, matches in groups)])
    transitions = np.concatenate([np.empty(0, np.uint8), *(matches.transition for _, matches in groups)])
    numbers = np.concatenate([none, *(matches.number for _, matches in groups)])
    invalid = np.array([row for row, problem in enumerate(problems) if problem is not None], np.int64)
    rows = np.concatenate([rows, invalid])
    gateways = np.concatenate([gateways, np.full(len(invalid), -1, np.int32)])
    order = np.lexsort((gateways, rows))
    rows, gateways = rows[order], gateways[order]
    starts = np.flatnonzero(
        np.concatenate(([True], (rows[1:] != rows[:-1]) | (gateways[1:] != gateways[:-1])))
    )
    starts = starts if len(rows) else none
    transitions = np.concatenate([transitions, np.zeros(len(invalid), np.uint8)])[order]
    numbers = np.concatenate([numbers, np.zeros(len(invalid), np.int64)])[order]
    first_rows = batch.take(pa.array(rows[starts]))
    arrays = [first_rows[name] for name in KEPT_COLUMNS]
    arrays.append(pa.array(problems, pa.string()).take(pa.array(rows[starts])))
    arrays.append(pa.array(gateways[starts], pa.int32()))
    arrays.extend(_list_column(numbers, transitions == kind, starts) for kind in (ENTER, UPDATE, LEAVE))
    arrays.append(pa.nulls(len(starts), pa.string()))
    arrays.append(pa.array(np.zeros(len(starts), np.bool_)))
    return pa.RecordBatch.from_arrays(arrays, schema=DELIVERIES)


def _list_column(numbers: Ints, selected: Bools, starts: Ints) -> pa.ListArray:
    """Return the selected numbers of each run. A run reaches from one of `starts` to the next."""
    before = np.concatenate(([0], np.cumsum(selected)))
    offsets = before[np.concatenate((starts, [len(numbers)]))]
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(numbers[selected], pa.int64()))

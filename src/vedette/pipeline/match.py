"""Stage 4: which subscriptions each change concerns, and how: against the version of the index that the batch pins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from vedette.clock import SystemClock
from vedette.errors import SourceError
from vedette.pipeline.context import PipelineContext
from vedette.pipeline.sampled_log import LARGE_SET, SLOW_FILTER_MS, remark
from vedette.pipeline.schema import DELIVERIES
from vedette.pipeline.telemetry import note_changes, note_match, note_shed, note_time
from vedette.sources.images import decode_image
from vedette.subscriptions.columns import Bools, Ints
from vedette.subscriptions.forms import Form, watch_of
from vedette.subscriptions.image_rows import DocumentChange, ImageRows
from vedette.subscriptions.index_files import open_version
from vedette.subscriptions.matching import ENTER, LEAVE, UPDATE, Matches, match_segments
from vedette.subscriptions.segment import LOW_PRIORITY
from vedette.subscriptions.watch_form import WatchForm
from vedette.watch.delta import same

__all__ = ["DecodedBatch", "match"]

_clock = SystemClock()
_KEPT = [field.name for field in DELIVERIES][:14]


def match(batch: pa.RecordBatch, context: PipelineContext) -> pa.RecordBatch:
    """One row per change and gateway; rows with a problem go on, so that somebody hears of them."""
    begin = _clock.monotonic()
    decoded = DecodedBatch(batch)
    groups: list[tuple[Ints, Matches]] = []
    shed = batch["shed"].to_numpy(zero_copy_only=False)
    for tenant, collection, version, newer_than, rows in decoded.groups():
        index = open_version(context.index, version)
        segments, dead = index.collection(tenant, collection)
        images = ImageRows(tenant, collection, [decoded.changes[row] for row in rows])
        found = match_segments(segments, dead, images, newer_than=newer_than)
        note_match(found.counts)
        _remark(found, images)
        places = np.array(rows, np.int64)
        groups.append((places, _visible(_unshed(found, shed[places]), images)))
    note_changes(int(np.count_nonzero(batch["newer_than"].to_numpy() < 0)))
    note_time((_clock.monotonic() - begin) * 1000)
    return _deliveries(batch, decoded.problems, groups)


class DecodedBatch:
    """The changes of a batch, each image decoded once; what cannot be decoded is a problem."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self.problems: list[str | None] = batch["problem"].to_pylist()
        columns = (batch[name].to_pylist() for name in ("offset", "key", "op", "before", "after"))
        self.changes: list[DocumentChange] = []
        for row, (offset, key, op, before, after) in enumerate(zip(*columns, strict=True)):
            self.changes.append(
                DocumentChange(offset, key, op, self._image(row, before), self._image(row, after))
            )

    def _image(self, row: int, image: bytes | None) -> dict[str, Any] | None:
        if image is None or self.problems[row] is not None:
            return None
        try:
            return decode_image(image)
        except SourceError as error:
            self.problems[row] = error.text
            return None

    def groups(self) -> Iterator[tuple[str, str, int, int, list[int]]]:
        """Rows by tenant, collection, version and what they are read for."""
        names = ("tenant", "collection", "version", "newer_than")
        found: dict[tuple[Any, ...], list[int]] = {}
        for row, group in enumerate(zip(*(self._batch[name].to_pylist() for name in names), strict=True)):
            if self.problems[row] is None:
                found.setdefault(group, []).append(row)
        for (tenant, collection, version, newer_than), rows in found.items():
            yield tenant, collection, version, newer_than, rows


def _remark(found: Matches, images: ImageRows) -> None:
    """Log what an operator may want to look at."""
    for spent, form in found.counts.times:
        if spent > SLOW_FILTER_MS:
            text = f"A filter over {images.collection} takes {spent:.0f} ms a batch"
            remark("match.slow", form.decode(), text, milliseconds=spent)
    if len(found) >= LARGE_SET:
        change, count = max(Counter(found.change.tolist()).items(), key=lambda item: item[1])
        if count >= LARGE_SET:
            text = f"A change of {images.collection} concerns {count} subscriptions"
            remark("match.large", images.collection, text, key=images.changes[change].key, count=count)


def _unshed(found: Matches, shed: Bools) -> Matches:
    """Without subscriptions of low priority where the partition is behind."""
    if not shed.any():
        return found
    passed_over = shed[found.change] & ((found.flags & LOW_PRIORITY) != 0)
    note_shed(int(np.count_nonzero(passed_over)))
    return found.take(np.flatnonzero(~passed_over))


def _visible(found: Matches, images: ImageRows) -> Matches:
    """Leave out watches with windows, and updates that a WATCH would not see: RETURN makes the same row of both."""
    watches = {place: watch for place, text in enumerate(found.forms) if (watch := _watch(text)) is not None}
    if not watches:
        return found
    windowed = [place for place, watch in watches.items() if watch.windowed]
    if windowed:  # those are told by `windows`
        found = found.take(np.flatnonzero(~np.isin(found.shape, windowed)))
    doubtful = np.flatnonzero((found.reason == UPDATE) & np.isin(found.shape, list(watches)))
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
def _watch(form: bytes) -> WatchForm | None:
    return watch_of(msgspec.json.decode(form, type=Form))


def _differs(watch: WatchForm, change: DocumentChange) -> bool:
    if change.before is None or change.after is None:
        return True
    return not same(watch.row(change.key, change.before), watch.row(change.key, change.after))


def _deliveries(
    batch: pa.RecordBatch, problems: list[str | None], groups: Sequence[tuple[Ints, Matches]]
) -> pa.RecordBatch:
    """One row per change and gateway, in the order of the batch; the subscriptions as lists."""
    nothing = np.empty(0, np.int64)
    rows = np.concatenate([nothing, *(places[found.change] for places, found in groups)])
    gateways = np.concatenate([np.empty(0, np.int32), *(found.gateway for _, found in groups)])
    reasons = np.concatenate([np.empty(0, np.uint8), *(found.reason for _, found in groups)])
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
    """The chosen numbers of each stretch that begins at one of `starts`."""
    before = np.concatenate(([0], np.cumsum(chosen)))
    offsets = before[np.concatenate((starts, [len(numbers)]))]
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(numbers[chosen], pa.int64()))

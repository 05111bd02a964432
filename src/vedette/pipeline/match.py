"""Stage 4: which subscriptions each change concerns, and how: against the version of the index that the batch pins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from vedette.errors import SourceError
from vedette.pipeline.context import PipelineContext
from vedette.pipeline.schema import DELIVERIES
from vedette.sources.images import decode_image
from vedette.subscriptions.columns import Ints
from vedette.subscriptions.forms import Form, watch_of
from vedette.subscriptions.image_rows import DocumentChange, ImageRows
from vedette.subscriptions.index_files import open_version
from vedette.subscriptions.matching import ENTER, LEAVE, UPDATE, Matches, match_segments
from vedette.subscriptions.watch_form import WatchForm
from vedette.watch.delta import same

__all__ = ["match"]

_KEPT = [field.name for field in DELIVERIES][:14]


def match(batch: pa.RecordBatch, context: PipelineContext) -> pa.RecordBatch:
    """One row per change and gateway; rows with a problem go on, so that somebody hears of them."""
    decoded = _Decoded(batch)
    groups: list[tuple[Ints, Matches]] = []
    for tenant, collection, version, newer_than, rows in decoded.groups():
        index = open_version(context.index, version)
        segments, dead = index.collection(tenant, collection)
        images = ImageRows(tenant, collection, [decoded.changes[row] for row in rows])
        found = match_segments(segments, dead, images, newer_than=newer_than)
        groups.append((np.array(rows, np.int64), _visible(found, images)))
    return _deliveries(batch, decoded.problems, groups)


class _Decoded:
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


def _visible(found: Matches, images: ImageRows) -> Matches:
    """Leave out updates that a WATCH would not see: its RETURN makes the same row of both images."""
    watches: dict[int, WatchForm] = {}
    for place, text in enumerate(found.forms):
        form = msgspec.json.decode(text, type=Form)
        watch = watch_of(form)
        if watch is not None:
            watches[place] = watch
    if not watches:
        return found
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


def _differs(watch: WatchForm, change: DocumentChange) -> bool:
    if change.before is None or change.after is None:
        return True
    return not same(watch.row(change.key, change.before), watch.row(change.key, change.after))


def _deliveries(
    batch: pa.RecordBatch, problems: list[str | None], groups: Iterable[tuple[Ints, Matches]]
) -> pa.RecordBatch:
    rows, gateways = [], []
    subscriptions: dict[int, list[list[int]]] = {ENTER: [], UPDATE: [], LEAVE: []}
    for places, found in groups:
        order = np.lexsort((found.reason, found.gateway, found.change))
        change, gateway, reason = found.change[order], found.gateway[order], found.reason[order]
        numbers = found.number[order]
        edges = _edges((change[1:] != change[:-1]) | (gateway[1:] != gateway[:-1]), len(change))
        rows.extend(places[change[edges[:-1]]].tolist())
        gateways.extend(gateway[edges[:-1]].tolist())
        for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            cuts = low + np.searchsorted(reason[low:high], [LEAVE, ENTER, UPDATE, UPDATE + 1])
            for kind, start, end in zip((LEAVE, ENTER, UPDATE), cuts, cuts[1:], strict=False):
                subscriptions[kind].append(numbers[start:end].tolist())
    poisoned = [row for row, problem in enumerate(problems) if problem is not None]
    order = np.argsort(np.array(rows + poisoned, np.int64), kind="stable")
    chosen = batch.take(pa.array(np.array(rows + poisoned, np.int64)[order]))
    empty: list[list[int]] = [[] for _ in poisoned]
    arrays = [chosen[name] for name in _KEPT]
    arrays.append(pa.array([None] * len(rows) + [problems[row] for row in poisoned], pa.string()).take(order))
    arrays.append(pa.array(gateways + [-1] * len(poisoned), pa.int32()).take(order))
    lists = (pa.array(subscriptions[kind] + empty, pa.list_(pa.int64())) for kind in (ENTER, UPDATE, LEAVE))
    arrays.extend(column.take(order) for column in lists)
    arrays.append(pa.nulls(len(order), pa.string()))
    arrays.append(pa.array([False] * len(order)))
    return pa.RecordBatch.from_arrays(arrays, schema=DELIVERIES)


def _edges(differs: Any, count: int) -> Ints:
    if not count:
        return np.zeros(1, np.int64)
    return np.concatenate(([0], np.flatnonzero(differs) + 1, [count]))

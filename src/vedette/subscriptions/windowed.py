"""Which subscriptions of a version of the index have windows: all that ends windows and begins them needs to know."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from vedette.subscriptions.forms import Form, watch_of
from vedette.subscriptions.index_files import open_version
from vedette.subscriptions.segment import Segment, ShapeRows
from vedette.subscriptions.watch_form import WatchForm

__all__ = ["WindowedSubscription", "watch_form", "windowed_subscriptions"]


class WindowedSubscription(NamedTuple):
    number: int
    gateway: int
    tenant: str
    collection: str
    form: str
    """An example of its shape, in JSON: the window and the aggregates are in it, its own constants are not."""
    created: datetime
    """When its windows begin."""
    boundary: int
    added: int

    @property
    def watch(self) -> WatchForm:
        return watch_form(self.form)


@lru_cache(maxsize=1024)
def watch_form(form: str) -> WatchForm:
    """The watch of a form that is known to be one."""
    watch = watch_of(msgspec.json.decode(form, type=Form))
    assert watch is not None, "a windowed subscription is a WATCH"
    return watch


@lru_cache(maxsize=8)
def windowed_subscriptions(folder: Path, version: int) -> dict[int, WindowedSubscription]:
    """By number. Opens only collections that have some; most versions have none, and cost nothing."""
    index = open_version(folder, version)
    found: dict[int, WindowedSubscription] = {}
    for tenant, held in index.manifest.collections.items():
        for collection, files in held.items():
            if not any(segment.windowed for segment in files.segments):
                continue
            segments, ended = index.collection(tenant, collection)
            for segment in segments:
                for part in segment.shapes:
                    if part.shape.window:
                        found |= _of(segment, part, tenant, collection)
            for number in ended.tolist():
                found.pop(number, None)
    return found


def _of(segment: Segment, part: ShapeRows, tenant: str, collection: str) -> dict[int, WindowedSubscription]:
    later = segment.shape_starts[segment.shape_starts > part.start]
    end = int(later.min()) if len(later) else len(segment)
    created = segment.constant(part.place, part.shape.constants - 1)
    found = {}
    for row in np.arange(part.start, end).tolist():
        found[int(segment.numbers[row])] = WindowedSubscription(
            int(segment.numbers[row]),
            int(segment.gateways[row]),
            tenant,
            collection,
            part.form.decode(),
            created.value(row - part.start),
            int(segment.boundaries[row]),
            int(segment.added[row]),
        )
    return found

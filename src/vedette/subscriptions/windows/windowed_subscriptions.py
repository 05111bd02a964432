"""The windowed subscriptions of an index version: what the windows query needs to start and end their windows."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from vedette.subscriptions.collection_watch import CollectionWatch
from vedette.subscriptions.index.segment import Segment, ShapeGroup
from vedette.subscriptions.index.versions import open_version
from vedette.subscriptions.spec import SubscriptionSpec, watch_of_spec

__all__ = ["WindowedSubscription", "watch_of_json", "windowed_subscriptions"]


class WindowedSubscription(NamedTuple):
    number: int
    gateway: int
    tenant: str
    collection: str
    spec: str
    """Example of its shape in JSON.

    It has the window and the aggregates, but not the constants of this subscription.
    """
    created: datetime
    """Start of its windows."""
    boundary: int
    added: int
    union: str
    state_owner: int
    """Number under which its windows are delivered: its own, or the smallest number in its union."""

    @property
    def watch(self) -> CollectionWatch:
        return watch_of_json(self.spec)


@lru_cache(maxsize=1024)
def watch_of_json(spec: str) -> CollectionWatch:
    """Return the watch of a spec in JSON. The spec must be of kind `watch`."""
    watch = watch_of_spec(msgspec.json.decode(spec, type=SubscriptionSpec))
    assert watch is not None, "a windowed subscription is a WATCH"
    return watch


@lru_cache(maxsize=8)
def windowed_subscriptions(folder: Path, version: int) -> dict[int, WindowedSubscription]:
    """Return the windowed subscriptions by number. Opens only collections with windows, and most versions have none."""
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
    return _assign_owners(found)


def _assign_owners(found: dict[int, WindowedSubscription]) -> dict[int, WindowedSubscription]:
    leaders: dict[tuple[int, str], int] = {}
    for number in sorted(found):
        each = found[number]
        if each.union:
            leader = leaders.setdefault((each.gateway, each.union), number)
            found[number] = each._replace(state_owner=leader)
    return found


def _of(segment: Segment, part: ShapeGroup, tenant: str, collection: str) -> dict[int, WindowedSubscription]:
    later = segment.shape_starts[segment.shape_starts > part.start]
    end = int(later.min()) if len(later) else len(segment)
    created, union = (segment.constant(part.shape_index, part.shape.constants - back) for back in (2, 1))
    found = {}
    for row in np.arange(part.start, end).tolist():
        number = int(segment.numbers[row])
        found[number] = WindowedSubscription(
            number,
            int(segment.gateways[row]),
            tenant,
            collection,
            part.spec.decode(),
            created.value(row - part.start),
            int(segment.boundaries[row]),
            int(segment.added[row]),
            union.value(row - part.start),
            number,
        )
    return found

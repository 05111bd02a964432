"""Admission to the file queue by capacity and share."""

from __future__ import annotations

import pytest

from vedette.errors import FolderError
from vedette.handshake.capacity import Capacity, RefusalReason, reconcile, release, request
from vedette.handshake.config import CoordinatorConfig

CONFIG = CoordinatorConfig(total_capacity=100, min_per_watch=10, max_per_watch=60)


@pytest.mark.parametrize(
    ("held", "count", "depth", "reason"),
    [
        ({}, 60, 0, None),
        ({}, 61, 0, RefusalReason.SHARE),
        ({"a": 60}, 1, 0, RefusalReason.SHARE),
        ({"b": 60}, 41, 0, RefusalReason.FULL),
        ({}, 1, 100, RefusalReason.FULL),
        ({}, 10, 80, None),
        ({}, 11, 80, RefusalReason.THROTTLED),
        ({"a": 5, "b": 60}, 6, 80, RefusalReason.THROTTLED),
    ],
)
def test_request(held: dict[str, int], count: int, depth: int, reason: RefusalReason | None) -> None:
    grant = request(Capacity(tasks_by_watch=held), "a", count, depth, CONFIG)
    assert (grant.granted, grant.reason) == (reason is None, reason)
    if grant.granted:
        assert grant.capacity.tasks_by_watch == {**held, "a": held.get("a", 0) + count}


def test_throttling_ends_below_the_low_watermark() -> None:
    capacity = request(Capacity(), "a", 1, 80, CONFIG).capacity
    assert capacity.throttling
    assert release(capacity, "a", 1, 50, CONFIG).throttling
    assert not release(capacity, "a", 1, 49, CONFIG).throttling


def test_release_never_fails() -> None:
    capacity = Capacity(tasks_by_watch={"a": 3})
    assert release(capacity, "a", 5, 0, CONFIG).tasks_by_watch == {}
    assert release(capacity, "unknown", 5, 0, CONFIG) == capacity


def test_reconcile_replaces_the_counts() -> None:
    assert reconcile(Capacity(tasks_by_watch={"a": 9}), {"b": 2, "c": 0}, 2, CONFIG).tasks_by_watch == {
        "b": 2
    }


def test_request_of_nothing_is_refused() -> None:
    with pytest.raises(FolderError, match="E4502"):
        request(Capacity(), "a", 0, 0, CONFIG)

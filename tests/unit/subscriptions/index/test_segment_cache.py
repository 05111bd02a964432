"""How much of the index a process keeps mapped."""

from __future__ import annotations

import gc
from pathlib import Path
from weakref import ref

import msgspec
import numpy as np

from vedette.subscriptions.index.change_batch import DocumentChange, ImageBatch
from vedette.subscriptions.index.matcher import match_segment
from vedette.subscriptions.index.segment import SegmentCache
from vedette.subscriptions.index.segment_writer import SegmentEntry, write_segment
from vedette.subscriptions.spec import SubscriptionSpec, split_constants


def written(folder: Path, name: str, source: str) -> Path:
    spec = SubscriptionSpec(kind="cel", source=source)
    entries = [
        SegmentEntry(n, 1, 0, 0, msgspec.json.encode(spec), split_constants(spec)[1]) for n in range(100)
    ]
    write_segment(folder / name, entries)
    return folder / name


def test_least_recently_used_segment_is_evicted(tmp_path: Path):
    """Also if compiled filters of the segment are cached."""
    paths = [written(tmp_path, f"{n}.seg", "doc.a + 1 == 2") for n in range(3)]
    size = paths[0].stat().st_size
    cache = SegmentCache(2 * size)
    first = cache.get(paths[0])
    images = ImageBatch("t", "c", [DocumentChange(1, "k", "create", None, {"a": 1})])
    assert len(match_segment(first, images)) == 100
    assert cache.get(paths[1]) is cache.get(paths[1])
    assert cache.get(paths[0]) is first
    second, gone = ref(cache.get(paths[1])), ref(first)
    del first
    cache.get(paths[2])
    gc.collect()
    assert gone() is None
    assert second() is not None
    assert cache.bytes == 2 * size
    cache.max_bytes = 1
    assert len(cache.get(paths[0])) == 100, "one is always there"
    assert cache.bytes == size
    assert np.array_equal(cache.get(paths[0]).numbers, np.arange(100))

"""How much of the index a process keeps mapped."""

from __future__ import annotations

import gc
from pathlib import Path
from weakref import ref

import msgspec
import numpy as np

from vedette.subscriptions.index.change_batch import DocumentChange, ImageRows
from vedette.subscriptions.index.matcher import match_segment
from vedette.subscriptions.index.segment import Entry, Shelf, write_segment
from vedette.subscriptions.spec import Form, take_apart


def written(folder: Path, name: str, source: str) -> Path:
    form = Form(kind="cel", source=source)
    entries = [Entry(n, 1, 0, 0, msgspec.json.encode(form), take_apart(form)[1]) for n in range(100)]
    write_segment(folder / name, entries)
    return folder / name


def test_what_was_not_used_lately_makes_room(tmp_path: Path):
    """Also when filters of it were evaluated by closures, which are remembered."""
    paths = [written(tmp_path, f"{n}.seg", "doc.a + 1 == 2") for n in range(3)]
    size = paths[0].stat().st_size
    shelf = Shelf(2 * size)
    first = shelf.take(paths[0])
    images = ImageRows("t", "c", [DocumentChange(1, "k", "create", None, {"a": 1})])
    assert len(match_segment(first, images)) == 100
    assert shelf.take(paths[1]) is shelf.take(paths[1])
    assert shelf.take(paths[0]) is first
    second, gone = ref(shelf.take(paths[1])), ref(first)
    del first
    shelf.take(paths[2])
    gc.collect()
    assert gone() is None
    assert second() is not None
    assert shelf.bytes == 2 * size
    shelf.most_bytes = 1
    assert len(shelf.take(paths[0])) == 100, "one is always there"
    assert shelf.bytes == size
    assert np.array_equal(shelf.take(paths[0]).numbers, np.arange(100))

"""Segments that earlier versions wrote."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from vedette.subscriptions.index.array_file import open_blocks, write_blocks
from vedette.subscriptions.index.change_batch import DocumentChange, ImageBatch
from vedette.subscriptions.index.matcher import match_segment
from vedette.subscriptions.index.segment import Segment, SegmentEntry, write_segment
from vedette.subscriptions.spec import SubscriptionSpec, split_constants


def test_a_segment_without_tables_is_read_as_one_with(tmp_path: Path) -> None:
    """It has the hash of every key, in order, and nothing beside it."""
    specs = [SubscriptionSpec(kind="cel", source=f"doc.a == {number % 7}") for number in range(50)]
    entries = [
        SegmentEntry(number, 1, 0, 0, msgspec.json.encode(spec), split_constants(spec)[1])
        for number, spec in enumerate(specs)
    ]
    write_segment(tmp_path / "now", entries)
    blocks = open_blocks(tmp_path / "now")
    arrays = dict(blocks.arrays)
    for name in [name for name in arrays if name.endswith(".first")]:
        table = name.removesuffix("first")
        arrays[f"{table}hash"] = np.repeat(arrays[f"{table}hash"], np.diff(arrays.pop(name)))
    assert len(arrays) < len(blocks.arrays)
    write_blocks(tmp_path / "then", blocks.facts, arrays)
    images = ImageBatch("t", "c", [DocumentChange(n, "k", "create", None, {"a": n}) for n in range(1, 9)])
    now, then = (match_segment(Segment.open(tmp_path / name), images) for name in ("now", "then"))
    assert len(now) == 6 * 7
    assert np.array_equal(now.number, then.number)
    assert np.array_equal(now.change, then.change)

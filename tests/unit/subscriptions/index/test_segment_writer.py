"""The format of index segments."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

import msgspec
import pytest

from vedette.errors import StoreError
from vedette.subscriptions.index.array_file import open_array_file
from vedette.subscriptions.index.change_batch import DocumentChange, ImageBatch
from vedette.subscriptions.index.matcher import match_segment
from vedette.subscriptions.index.segment import Segment
from vedette.subscriptions.index.segment_writer import SegmentEntry, write_segment
from vedette.subscriptions.spec import SubscriptionSpec, split_constants

SOURCES = (
    "doc.status == 'paid' && doc.total > 100",
    "doc.status == 'open' && doc.total > 7.5",
    "doc.tag in ['a', 'b'] || id == 'k1'",
    "doc.active",
    "op == 'delete'",
)
GOLDEN_DIGEST = "4c6378f918355fc255bd6e332697b7a7"


def entries() -> list[SegmentEntry]:
    specs = [SubscriptionSpec(kind="cel", source=source) for source in SOURCES]
    return [
        SegmentEntry(number, 1, 5, number % 2, msgspec.json.encode(spec), split_constants(spec)[1], 3)
        for number, spec in enumerate(specs, start=1)
    ]


def test_segment_format_is_pinned(tmp_path: Path):
    """A change of these bytes needs a new INDEX_FORMAT."""
    path = tmp_path / "segment"
    assert write_segment(path, entries()) == path.stat().st_size
    file = open_array_file(path)
    assert file.metadata["signatures"] == [
        [[["doc", "status"]], ["doc", "total"], True],
        [[["doc", "tag"]], None, True],
        [[["id"]], None, True],
        [[["doc", "active"]], None, True],
        [[["op"]], None, True],
    ]
    assert [shape["start"] for shape in file.metadata["shapes"]] == [0, 2, 3, 4]
    assert blake2b(path.read_bytes(), digest_size=16).hexdigest() == GOLDEN_DIGEST


def test_written_segment_matches(tmp_path: Path):
    path = tmp_path / "segment"
    write_segment(path, entries())
    document = {"status": "paid", "total": 101, "tag": "b", "active": True}
    images = ImageBatch("t", "c", [DocumentChange(9, "k1", "create", None, document)])
    matches = match_segment(Segment.open(path), images)
    assert sorted(matches.number.tolist()) == [1, 3, 4]


def test_file_of_another_format_is_refused(tmp_path: Path):
    path = tmp_path / "segment"
    write_segment(path, entries())
    path.write_bytes(b"VEDBLK01" + path.read_bytes()[8:])
    with pytest.raises(StoreError, match="has another format than VEDBLK02: restart the pipeline") as error:
        open_array_file(path)
    assert error.value.code == "E6004"

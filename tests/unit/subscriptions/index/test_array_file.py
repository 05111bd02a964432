"""Files of named arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vedette.subscriptions.index.array_file import open_array_file, write_array_file


def test_arrays_and_metadata_are_restored(tmp_path: Path):
    path = tmp_path / "file.blk"
    arrays: dict[str, npt.NDArray[Any]] = {
        "numbers": np.arange(5, dtype=np.int64),
        "bits": np.ones((2, 3), np.uint8),
        "empty": np.empty(0, np.float64),
    }
    size = write_array_file(path, {"a": [1, None]}, arrays)
    file = open_array_file(path)
    assert size == path.stat().st_size
    assert file.metadata == {"a": [1, None]}
    assert all(np.array_equal(file.array(name), array) for name, array in arrays.items())
    assert {name: file.array(name).dtype for name in arrays} == {
        name: array.dtype for name, array in arrays.items()
    }
    assert [each.name for each in tmp_path.iterdir()] == ["file.blk"], "no temporary file is left"


def test_file_format_is_pinned(tmp_path: Path):
    """A change of these bytes needs a new magic number."""
    path = tmp_path / "file.blk"
    write_array_file(path, {"x": 1}, {"n": np.array([7], np.int64)})
    header = b'{"metadata":{"x":1},"arrays":{"n":["<i8",[1],0]}}'
    padded = header + b" " * (-(16 + len(header)) % 64)
    data = (7).to_bytes(8, "little") + bytes(56)
    assert path.read_bytes() == b"VEDBLK02" + len(padded).to_bytes(8, "little") + padded + data

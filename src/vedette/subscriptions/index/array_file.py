"""A file of named arrays that is memory-mapped as a whole: pages are read on access and shared between workers.

    8 bytes   magic, `VEDBLK` and the version as two digits
    8 bytes   length of the header, little-endian
    header    JSON: {"metadata": …, "arrays": {name: [dtype, shape, offset]}}, offsets from the start of the data
    data      the arrays, each at a multiple of 64 bytes from the start of the file

A file is written under a temporary name, synced and renamed, and never changed afterwards.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from vedette.errors import StoreError

__all__ = ["ArrayFile", "open_array_file", "write_array_file"]

_MAGIC = b"VEDBLK02"
_ALIGNMENT = 64


class ArrayFile:
    """An opened file: its metadata and its arrays by name."""

    def __init__(self, metadata: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> None:
        self.metadata = metadata
        self.arrays = arrays

    def array(self, name: str) -> npt.NDArray[Any]:
        return self.arrays[name]


def write_array_file(path: Path, metadata: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> int:
    """Write the file and sync it. Returns its size in bytes."""
    entries: dict[str, tuple[str, tuple[int, ...], int]] = {}
    offset = 0
    for name, array in arrays.items():
        entries[name] = (array.dtype.str, array.shape, offset)
        offset += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
    header = msgspec.json.encode({"metadata": dict(metadata), "arrays": entries})
    header += b" " * (-(len(_MAGIC) + 8 + len(header)) % _ALIGNMENT)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with draft.open("wb") as file:
        file.write(_MAGIC + len(header).to_bytes(8, "little") + header)
        for array in arrays.values():
            data = np.ascontiguousarray(array).tobytes()
            file.write(data + bytes(-len(data) % _ALIGNMENT))
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
    draft.rename(path)
    return size


def open_array_file(path: Path) -> ArrayFile:
    """Map the file. Raises StoreError E6004 if it has another format."""
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if mapped[: len(_MAGIC)] != _MAGIC:
        text = f"{path} has another format than {_MAGIC.decode()}: restart the pipeline, which rebuilds the index"
        raise StoreError("E6004", text, fields={"place": str(path)})
    start = len(_MAGIC) + 8
    end = start + int.from_bytes(mapped[len(_MAGIC) : start], "little")
    header = msgspec.json.decode(mapped[start:end])
    arrays = {}
    for name, (kind, shape, offset) in header["arrays"].items():
        count = int(np.prod(shape, dtype=np.int64))
        array = (
            np.frombuffer(mapped, np.dtype(kind), count, end + offset)
            if count
            else np.empty(0, np.dtype(kind))
        )
        arrays[name] = array.reshape(shape)
    return ArrayFile(header["metadata"], arrays)

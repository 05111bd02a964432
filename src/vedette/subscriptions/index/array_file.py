"""A file of named arrays that is memory-mapped as a whole: pages are read on access and shared between workers.

    8 bytes   magic, `VEDBLK` and the version as two digits
    8 bytes   length of the header, little-endian
    header    JSON: {"facts": …, "arrays": {name: [dtype, shape, offset]}}, offsets from the start of the data
    data      the arrays, each at a multiple of 64 bytes from the start of the file

A file gets its name only when it is complete and synced, and is never changed afterwards.
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

__all__ = ["Blocks", "open_blocks", "write_blocks"]

_MAGIC = b"VEDBLK01"
_ALIGNMENT = 64


class Blocks:
    """An opened file: `facts` as written, arrays by name."""

    def __init__(self, facts: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> None:
        self.facts = facts
        self.arrays = arrays

    def array(self, name: str) -> npt.NDArray[Any]:
        return self.arrays[name]


def write_blocks(path: Path, facts: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> int:
    """Write the file durably and return its size."""
    places: dict[str, tuple[str, tuple[int, ...], int]] = {}
    offset = 0
    for name, array in arrays.items():
        places[name] = (array.dtype.str, array.shape, offset)
        offset += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
    header = msgspec.json.encode({"facts": dict(facts), "arrays": places})
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


def open_blocks(path: Path) -> Blocks:
    """Map the file. Raises StoreError E6004 if it has another format."""
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if mapped[: len(_MAGIC)] != _MAGIC:
        raise StoreError("E6004", f"{path} is no file of the subscription index", fields={"place": str(path)})
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
    return Blocks(header["facts"], arrays)

"""A file beside the store in which processes that will be killed record their progress."""

from __future__ import annotations

import os
from threading import Lock

__all__ = ["Ledger"]


class Ledger:
    """Lines that are durable when `write` returns."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._lock = Lock()

    def write(self, *lines: str) -> None:
        with self._lock:
            os.write(self._file, "".join(f"{line}\n" for line in lines).encode())
            os.fsync(self._file)

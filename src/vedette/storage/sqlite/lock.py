"""The engine lock: one engine at a time holds `engine.lock` of a data directory.

The kernel releases the lock (flock) with its process; the contents of the file only name the holder. The file is never
deleted, because two processes could then lock two files of the same name.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from vedette.errors import StoreError
from vedette.storage.sqlite.errors import translate_errors

__all__ = ["EngineLock"]


class EngineLock:
    """Held from construction to `release`. A second lock on the same file is refused, also in the same process."""

    def __init__(self, path: Path) -> None:
        self._pid = os.getpid()
        with translate_errors(str(path.parent)):
            self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                self._acquire(path)
                os.ftruncate(self._descriptor, 0)
                os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
            except BaseException:
                os.close(self._descriptor)
                raise

    def release(self) -> None:
        """Release the lock. Idempotent."""
        if self._descriptor is None:
            return
        if (
            os.getpid() == self._pid
        ):  # a forked child has the file open too: it must neither keep nor release the lock
            os.ftruncate(self._descriptor, 0)
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)
        self._descriptor = None

    def _acquire(self, path: Path) -> None:
        assert self._descriptor is not None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            if problem.errno not in {errno.EWOULDBLOCK, errno.EACCES}:
                raise
            raise _in_use(path.parent, os.pread(self._descriptor, 32, 0)) from None


def _in_use(directory: Path, holder: bytes) -> StoreError:
    words = holder.strip().decode("ascii", "replace")
    pid = int(words) if words.isdecimal() else None
    if pid == os.getpid():
        text = (
            f"{directory} is already open in this process (pid {pid}): use that database, or close it first"
        )
    elif pid is not None:
        text = (
            f"{directory} is in use by another engine (pid {pid}): go through it (vedette finds a running server "
            f"by itself), stop it, or choose another directory"
        )
    else:
        text = f"{directory} is in use by another engine: stop it, or choose another directory"
    return StoreError("E6002", text, fields={"directory": str(directory), "pid": pid})

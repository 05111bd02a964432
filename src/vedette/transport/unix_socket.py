"""Unix sockets of a data directory: where they are, and that only their owner may use them."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from pathlib import Path

from vedette.errors import StoreError

__all__ = ["close_to_others", "remove_stale_socket", "socket_path"]

_LONGEST = 100
"""Bytes of a socket's path that every system takes."""


def socket_path(directory: Path, name: str) -> Path:
    """In the directory; when that makes the path too long, in a private folder among the temporary files."""
    path = directory.resolve() / name
    if len(str(path).encode()) <= _LONGEST:
        return path
    digest = hashlib.blake2b(str(directory.resolve()).encode(), digest_size=8).hexdigest()
    return _private(Path(tempfile.gettempdir()) / f"vedette-{digest}") / name


def _private(folder: Path) -> Path:
    """Among the temporary files anybody can make a folder of this name, or a link: whose it is has to be looked at."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        text = f"{folder} is not a folder of this user: delete it, or choose a data directory with a shorter path"
        raise StoreError("E6003", text)
    folder.chmod(0o700)
    return folder


def remove_stale_socket(path: Path) -> None:
    """Away with what a server that was killed has left."""
    path.unlink(missing_ok=True)


def close_to_others(path: Path) -> None:
    path.chmod(0o600)

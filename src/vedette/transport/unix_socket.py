"""Paths and permissions of a data directory's Unix sockets."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from pathlib import Path

from vedette.errors import StoreError

__all__ = ["remove_stale_socket", "restrict_to_owner", "socket_path"]

_MAX_PATH_BYTES = 100
"""Path length that every supported system accepts."""


def socket_path(directory: Path, name: str) -> Path:
    """Return the path in the directory. If it would be too long, use a private directory for temporary files."""
    path = directory.resolve() / name
    if len(str(path).encode()) <= _MAX_PATH_BYTES:
        return path
    digest = hashlib.blake2b(str(directory.resolve()).encode(), digest_size=8).hexdigest()
    return _private_directory(Path(tempfile.gettempdir()) / f"vedette-{digest}") / name


def _private_directory(folder: Path) -> Path:
    """Create a directory and check its owner, since anyone can create one of this name among temporary files."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        text = f"{folder} is not a directory of this user: delete it, or choose a data directory with a shorter path"
        raise StoreError("E6003", text)
    folder.chmod(0o700)
    return folder


def remove_stale_socket(path: Path) -> None:
    """Remove the socket of a server that was killed."""
    path.unlink(missing_ok=True)


def restrict_to_owner(path: Path) -> None:
    path.chmod(0o600)

"""Unix sockets of a data directory: where they are, and that only their owner may use them."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

__all__ = ["clear", "close_to_others", "socket_path"]

_LONGEST = 100
"""Bytes of a socket's path that every system takes."""


def socket_path(directory: Path, name: str) -> Path:
    """In the directory; when that makes the path too long, in a private folder among the temporary files."""
    path = directory.resolve() / name
    if len(str(path).encode()) <= _LONGEST:
        return path
    digest = hashlib.blake2b(str(directory.resolve()).encode(), digest_size=8).hexdigest()
    folder = Path(tempfile.gettempdir()) / f"vedette-{digest}"
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    return folder / name


def clear(path: Path) -> None:
    """Away with what a server that was killed has left."""
    path.unlink(missing_ok=True)


def close_to_others(path: Path) -> None:
    path.chmod(0o600)

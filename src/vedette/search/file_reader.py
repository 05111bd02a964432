"""Read one consistent version of a file."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from vedette.errors import IngestError

__all__ = ["MAX_FILE_BYTES", "FileContent", "read_file"]

MAX_FILE_BYTES = 20 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileContent:
    data: bytes
    content_hash: str
    """SHA-256, in hexadecimal."""


def read_file(path: str, max_bytes: int = MAX_FILE_BYTES) -> FileContent:
    """Raises FileNotFoundError if it is gone; E4511, E4513 or E4514 if it cannot be used now."""
    try:
        # Do not block if a named pipe has replaced the file.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor has no path
            before = os.fstat(file.fileno())
            if not stat.S_ISREG(before.st_mode):
                raise IngestError("E4511", f"{path} is no regular file", fields={"path": path})
            if before.st_size > max_bytes:
                raise _too_large(path, before.st_size, max_bytes)
            data = file.read(max_bytes + 1)
            after = os.fstat(file.fileno())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(str(Path(path))) from error
    except OSError as error:
        raise IngestError(
            "E4511",
            f"{path} may not be read ({error.strerror or error}): give this user the right to read it",
            fields={"path": path, "errno": error.errno},
        ) from error
    if len(data) > max_bytes:
        raise _too_large(path, len(data), max_bytes)
    if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size) or len(
        data
    ) != after.st_size:
        raise IngestError("E4514", f"{path} was written while it was read", fields={"path": path})
    return FileContent(data, hashlib.sha256(data).hexdigest())


def _too_large(path: str, size: int, max_bytes: int) -> IngestError:
    return IngestError(
        "E4513",
        f"{path} has {size:,} bytes, {max_bytes:,} is the most: raise the limit, or ignore it with a pattern",
        fields={"path": path, "bytes": size, "limit": max_bytes},
    )

"""Read one consistent version of a file, with its hash."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from vedette.errors import IngestError

__all__ = ["MAX_FILE_BYTES", "FileContent", "read_file"]

MAX_FILE_BYTES = 20 * 1024 * 1024
"""Default size limit."""


@dataclass(frozen=True, slots=True)
class FileContent:
    data: bytes
    content_hash: str
    """SHA-256, in hexadecimal."""


def read_file(path: str, max_bytes: int = MAX_FILE_BYTES) -> FileContent:
    """Read a file.

    Raises FileNotFoundError if it does not exist, E4511 if it cannot be read, E4513 if it is larger than `max_bytes`,
    and E4514 if it was written while it was read.
    """
    try:
        # Non-blocking, because a named pipe may have replaced the file.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor has no path
            before = os.fstat(file.fileno())
            if not stat.S_ISREG(before.st_mode):
                raise IngestError("E4511", f"{path} is not a regular file", fields={"path": path})
            if before.st_size > max_bytes:
                raise _too_large(path, before.st_size, max_bytes)
            data = file.read(max_bytes + 1)
            after = os.fstat(file.fileno())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(str(Path(path))) from error
    except OSError as error:
        raise IngestError(
            "E4511",
            f"{path} cannot be read ({error.strerror or error}): give this user permission to read it",
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
        f"{path} has {size:,} bytes, and the limit is {max_bytes:,}: raise the limit, or exclude the file with "
        "an ignore pattern",
        fields={"path": path, "bytes": size, "limit": max_bytes},
    )

"""The secret of a data directory: signs resume tokens and authenticates links between its processes."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from vedette.errors import StoreError

__all__ = ["FILE", "load_or_create_secret"]

FILE = "gateway.secret"
_BYTES = 32


def load_or_create_secret(directory: Path | None) -> bytes:
    """Read the secret, or create it on first use. Without a directory, return one for this process only."""
    if directory is None:
        return secrets.token_bytes(_BYTES)
    path = directory / FILE
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        data = path.read_bytes()
    except OSError as error:
        raise StoreError("E6003", f"{path} cannot be created: {error.strerror}") from error
    else:
        data = secrets.token_bytes(_BYTES)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    if len(data) < _BYTES:
        raise StoreError("E6003", f"{path} is damaged: delete it; clients must then resync")
    return data

"""`DIR/server.json`: which server has a data directory open, and how to reach it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["SERVER_FILE_NAME", "ServerFile", "read_server_file", "write_server_file"]

SERVER_FILE_NAME = "server.json"
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFile:
    pid: int
    host: str
    port: int
    """Of the WebSocket endpoint."""
    http_port: int
    local_socket: str
    """Where command lines of this machine connect."""
    engine_socket: str
    """Where gateway workers connect."""
    version: int = _VERSION


def write_server_file(directory: Path, found: ServerFile) -> None:
    """All of it or nothing: others may read it at any moment."""
    path = directory / SERVER_FILE_NAME
    fresh = path.with_suffix(f".{found.pid}")
    fresh.write_text(json.dumps(asdict(found), indent=2) + "\n", encoding="utf-8")
    fresh.replace(path)


def read_server_file(directory: Path) -> ServerFile | None:
    """The server that runs; None when there is none, also when one was killed and left its file behind."""
    try:
        data = json.loads((directory / SERVER_FILE_NAME).read_text(encoding="utf-8"))
        if data.get("version") != _VERSION:
            return None
        found = ServerFile(**data)
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    return found if _is_alive(found.pid) else None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True  # somebody else's
    except OSError:
        return False
    return True

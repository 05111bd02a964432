"""`DIR/server.json`: the server that has a data directory open, and how to connect to it."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

__all__ = ["SERVER_FILE_NAME", "ServerFile", "read_server_file", "write_server_file"]

SERVER_FILE_NAME = "server.json"
_VERSION = 1


class ServerFile(msgspec.Struct, frozen=True, kw_only=True):
    """The fields are the keys of the file. Change `_VERSION` with them."""

    pid: int
    host: str
    port: int
    """Port of the WebSocket endpoint."""
    http_port: int
    local_socket: str
    """Unix socket for command lines on this machine."""
    engine_socket: str
    """Unix socket for gateway workers."""
    version: int = _VERSION


def write_server_file(directory: Path, server: ServerFile) -> None:
    """Write the file atomically; other processes may read it at any time."""
    path = directory / SERVER_FILE_NAME
    temporary = path.with_suffix(f".{server.pid}")
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(server), indent=2) + b"\n")
    temporary.replace(path)


def read_server_file(directory: Path) -> ServerFile | None:
    """Return the running server, or None. A file that a killed server left behind is ignored."""
    try:
        server = msgspec.json.decode((directory / SERVER_FILE_NAME).read_bytes(), type=ServerFile)
    except (OSError, msgspec.DecodeError):
        return None
    return server if server.version == _VERSION and _is_alive(server.pid) else None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True  # a process of another user
    except OSError:
        return False
    return True

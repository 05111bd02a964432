"""The file `gateway.window`: replay windows of a server that stopped gracefully.

The file is a MessagePack map, `{"version": 2, "at_ms": …, "tenants": […]}`, with the fields of the records below under
the names that `name=` gives. A stream's `spec` is JSON with one of these forms:

    {"watch": TEXT, "params": {NAME: VALUE}}                                    a watch of the graph
    {"query": QUERY, "auth": AUTH, "time_ms": MS, "include_data": BOOL}         a filter over a node type
    {"collection": {…}}                                                         `collections/queries.py`

The file holds derived data. A file of another version, or a damaged one, is logged and ignored: clients cannot resume
and subscribe again.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import msgspec

__all__ = [
    "FILE",
    "VERSION",
    "SavedStream",
    "SavedTenant",
    "SavedWindows",
    "encode_windows",
    "take_windows",
    "write_windows",
]

log = logging.getLogger(__name__)
FILE = "gateway.window"
VERSION = 3


class SavedEvent(msgspec.Struct, frozen=True, kw_only=True):
    seq: int = msgspec.field(name="seq")
    suffix: bytes = msgspec.field(name="suffix")
    """The encoded event from its partition field on."""
    age_seconds: float = msgspec.field(name="age_seconds")


class SavedStream(msgspec.Struct, frozen=True, kw_only=True):
    key: bytes = msgspec.field(name="stream_key")
    actor: str | None = msgspec.field(name="actor")
    spec: bytes = msgspec.field(name="spec")
    """JSON from which the stream is rebuilt."""
    claims_hash: bytes | None = msgspec.field(name="claims_hash")
    position: int = msgspec.field(name="position")
    """Position of the watch's last event."""
    evicted_seq: int = msgspec.field(name="evicted_seq")
    last_seq: int = msgspec.field(name="last_seq")
    seconds_left: float = msgspec.field(name="seconds_left")
    """Seconds for which the stream could still be resumed."""
    events: tuple[SavedEvent, ...] = msgspec.field(name="events")
    """Retained events, oldest first."""


class SavedTenant(msgspec.Struct, frozen=True, kw_only=True):
    tenant: str = msgspec.field(name="tenant")
    epoch: int = msgspec.field(name="epoch")
    commit_sequence: int = msgspec.field(name="commit_sequence")
    """Sequence number of the last commit. A different number at the restart means that commits were missed."""
    streams: tuple[SavedStream, ...] = msgspec.field(name="streams")


class SavedWindows(msgspec.Struct, frozen=True, kw_only=True):
    version: int = msgspec.field(name="version", default=VERSION)
    at_ms: int = msgspec.field(name="at_ms")
    """Wall-clock time of the shutdown."""
    tenants: tuple[SavedTenant, ...] = msgspec.field(name="tenants")


class _Header(msgspec.Struct, frozen=True):
    version: int = msgspec.field(name="version")


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(SavedWindows)
_header = msgspec.msgpack.Decoder(_Header)


def encode_windows(windows: SavedWindows) -> bytes:
    return _encoder.encode(windows)


def write_windows(path: Path, windows: SavedWindows) -> None:
    """Write the file and replace an older one. A failure is logged: clients then subscribe again."""
    temporary = path.with_suffix(".new")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(encode_windows(windows))
        temporary.replace(path)
    except OSError as error:
        extra = {"action": "window.save_failed", "path": str(path)}
        log.warning("The replay windows cannot be saved: %s", error, extra=extra)


def take_windows(path: Path) -> SavedWindows | None:
    """Read and delete the file; None if it cannot be used. A file that stayed would be stale after a later crash."""
    try:
        data = path.read_bytes()
        path.unlink()
    except FileNotFoundError:
        return None
    try:
        version = _header.decode(data).version
        if version == VERSION:
            return _decoder.decode(data)
    except msgspec.MsgspecError:
        extra = {"action": "window.damaged", "path": str(path)}
        log.warning("%s is damaged and ignored; clients cannot resume and subscribe again", path, extra=extra)
        return None
    log.warning(
        "%s has version %d instead of %d and is ignored; clients cannot resume and subscribe again",
        path,
        version,
        VERSION,
        extra={"action": "window.other_version", "path": str(path), "version": version},
    )
    return None

"""The data directory: the databases of one engine on disk.

    DIR/format                       the version of this layout, as text
    DIR/engine.lock                  held by the engine that may write (vedette.storage.sqlite.lock)
    DIR/databases/<name>.sqlite      one file per database; names encoded as in vedette.storage.names

Other parts of Vedette store their files beside these.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from threading import Lock

from vedette.clock import Clock, SystemClock
from vedette.errors import StoreError
from vedette.storage.names import decode_name, encode_name, listing_order
from vedette.storage.seam import Durability
from vedette.storage.sqlite.connection import sync_directory
from vedette.storage.sqlite.errors import translate_errors
from vedette.storage.sqlite.lock import EngineLock
from vedette.storage.sqlite.store import SqliteStore

__all__ = ["FORMAT_VERSION", "DataDirectory", "list_databases", "read_format"]

FORMAT_VERSION = 1
_FORMAT = re.compile(r"vedette data directory, format (\d+)\n")
_ENDING = ".sqlite"


class DataDirectory:
    """A data directory, created if needed, locked for this engine until `close`."""

    def __init__(
        self, directory: Path, *, durability: Durability = "fsync", clock: Clock | None = None
    ) -> None:
        self.directory = directory
        self._durability, self._clock = durability, clock or SystemClock()
        self._stores: dict[str, SqliteStore] = {}
        self._opening = Lock()
        with translate_errors(str(directory)):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = EngineLock(directory / "engine.lock")
            try:
                _check_layout(directory)
                _databases(directory).mkdir(exist_ok=True)
            except BaseException:
                self._lock.release()
                raise

    def open(self, name: str) -> SqliteStore:
        path = _databases(self.directory) / f"{encode_name(name)}{_ENDING}"
        with self._opening:
            last = self._stores.get(name)
            if last is not None and not last.closed:
                text = f"{path} is already open in this process: use that store, or close it first"
                raise StoreError("E6002", text, fields={"pid": os.getpid()})
            store = SqliteStore(path, durability=self._durability, clock=self._clock)
            self._stores[name] = store
        return store

    def databases(self) -> list[str]:
        return list_databases(self.directory)

    def close(self) -> None:
        try:
            for store in self._stores.values():
                store.close()
        finally:
            self._lock.release()


def list_databases(directory: Path) -> list[str]:
    """Names of the databases in a data directory, "default" first. Needs no lock."""
    with translate_errors(str(directory)):
        if not _databases(directory).is_dir():
            return []
        names = (decode_name(path.stem) for path in _databases(directory).glob(f"*{_ENDING}"))
        return sorted((name for name in names if name is not None), key=listing_order)


def read_format(directory: Path) -> int | None:
    """Return the format version of a data directory, or None for a new one."""
    try:
        found = _FORMAT.fullmatch((directory / "format").read_text(errors="replace"))
    except OSError:
        return None
    return int(found[1]) if found else None


def _databases(directory: Path) -> Path:
    return directory / "databases"


def _check_layout(directory: Path) -> None:
    path = directory / "format"
    if not path.exists():
        _write_durably(path, f"vedette data directory, format {FORMAT_VERSION}\n")
        return
    found = _FORMAT.fullmatch(path.read_text(errors="replace"))
    if found is None or int(found[1]) != FORMAT_VERSION:
        what = f"format {found[1]}" if found else "an unknown format"
        raise StoreError(
            "E6004",
            f"{directory} has {what}, but this version of Vedette reads format {FORMAT_VERSION}: open it with the"
            " Vedette that wrote it or a newer one; nothing was changed",
            fields={"directory": str(directory)},
        )


def _write_durably(path: Path, text: str) -> None:
    """Write the file atomically, also across a power cut."""
    draft = path.with_name(f"{path.name}.new")
    with draft.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
    sync_directory(path.parent)

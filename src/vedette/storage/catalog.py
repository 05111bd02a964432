"""One door to every kind of home: a data directory, a PostgreSQL address, or `:memory:`."""

from __future__ import annotations

import os
from pathlib import Path

from vedette.clock import Clock, SystemClock
from vedette.storage.memory import MemoryHome
from vedette.storage.seam import Durability, Home
from vedette.storage.sqlite.directory import DirectoryHome

__all__ = ["MEMORY", "open_home"]

MEMORY = ":memory:"
_POSTGRES = ("postgresql://", "postgres://")


def open_home(
    location: str | os.PathLike[str], *, durability: Durability = "fsync", clock: Clock | None = None
) -> Home:
    """Open the home at `location` for one engine; E6002 while another has it.

    A text that begins with `postgresql://` is a server, `:memory:` keeps nothing, anything else is a directory.
    """
    clock = clock or SystemClock()
    place = os.fspath(location)
    if place == MEMORY:
        return MemoryHome(clock=clock)
    if place.startswith(_POSTGRES):
        from vedette.storage.postgres.catalog import PostgresHome  # a driver that most people never need

        return PostgresHome(place, durability=durability, clock=clock)
    return DirectoryHome(Path(place), durability=durability, clock=clock)

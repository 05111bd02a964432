"""Open the catalog of stores at a location: a data directory, a PostgreSQL URL, or `:memory:`."""

from __future__ import annotations

import os
from pathlib import Path

from vedette.clock import Clock, SystemClock
from vedette.storage.memory import MemoryCatalog
from vedette.storage.seam import Durability, StoreCatalog
from vedette.storage.sqlite.directory import DataDirectory

__all__ = ["MEMORY", "open_catalog"]

MEMORY = ":memory:"
_POSTGRES = ("postgresql://", "postgres://")


def open_catalog(
    location: str | os.PathLike[str], *, durability: Durability = "fsync", clock: Clock | None = None
) -> StoreCatalog:
    """Open the catalog at `location` for one engine. Raises E6002 while another engine has it open.

    `postgresql://…` is a server, `:memory:` keeps nothing, anything else is a directory.
    """
    clock = clock or SystemClock()
    place = os.fspath(location)
    if place == MEMORY:
        return MemoryCatalog(clock=clock)
    if place.startswith(_POSTGRES):
        from vedette.storage.postgres.catalog import (
            PostgresCatalog,
        )  # an optional driver that most users do not need

        return PostgresCatalog(place, durability=durability, clock=clock)
    return DataDirectory(Path(place), durability=durability, clock=clock)

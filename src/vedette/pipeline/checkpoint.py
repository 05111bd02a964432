"""Where a query begins, and how far it had come: what stands in the folder of its checkpoint.

Where a query without a checkpoint begins is decided once, and written down before Spark is asked to start it. Spark
asks a source for its first offset each time that it has to know it, until a batch is committed: for planning a range,
for reading it, and again after a crash. "Where the journal ends now" would be another answer each time: a first batch
that was planned to end at 517 was read as (518, 517], with 518 told to new subscriptions as the past, and told once
more by the second batch.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from vedette.sources.journal.seam import open_journal

__all__ = ["initial_offset", "last_committed_offset"]

_FILE = "first-offset"


def initial_offset(checkpoint: Path, journal: str, start: int | None = None) -> int:
    """The offset that is written down with the checkpoint; if none is, `start`, or where the journal ends now."""
    place = checkpoint / _FILE
    try:
        return int(place.read_text())
    except FileNotFoundError:
        return _write(place, _end_of(journal) if start is None else start)


def last_committed_offset(checkpoint: Path) -> dict[str, Any] | None:
    """The end of the last batch that was told whole, by whoever ran the query before; None when there is none."""
    batches = [int(file.name) for file in (checkpoint / "commits").glob("*") if file.name.isdecimal()]
    if not batches:
        return None
    *_, offset = (checkpoint / "offsets" / str(max(batches))).read_text().splitlines()
    found: dict[str, Any] = json.loads(offset)
    return found


def _end_of(address: str) -> int:
    journal = open_journal(address)
    try:
        return journal.last_offset()
    finally:
        journal.close()


def _write(place: Path, offset: int) -> int:
    """Whole or not at all, and on the disk before anything depends on it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = place.with_name(f".{_FILE}")
    with draft.open("w") as file:
        file.write(str(offset))
        file.flush()
        os.fsync(file.fileno())
    draft.rename(place)
    return offset

"""The initial and the last committed offset of a query, stored in its checkpoint folder.

The initial offset is decided once and stored before Spark starts the query. Spark asks a source for its first offset
repeatedly until a batch is committed: when it plans a range, when it reads it, and again after a crash. "The current
end of the journal" would be a different answer each time: a first batch planned to end at 517 was read as (518, 517],
so that 518 was delivered as backfill and again by the second batch.
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
    """Return the stored initial offset. If there is none, store and return `start`, or the current end of the
    journal."""
    place = checkpoint / _FILE
    try:
        return int(place.read_text())
    except FileNotFoundError:
        return _write(place, _end_of(journal) if start is None else start)


def last_committed_offset(checkpoint: Path) -> dict[str, Any] | None:
    """Return the end of the last batch that was delivered completely by an earlier run; None if there is none."""
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
    """Write atomically and sync to disk before anything depends on it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = place.with_name(f".{_FILE}")
    with draft.open("w") as file:
        file.write(str(offset))
        file.flush()
        os.fsync(file.fileno())
    draft.rename(place)
    return offset

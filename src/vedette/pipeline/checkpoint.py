"""The initial and the last committed offset of a query, stored in its checkpoint folder.

The initial offset is decided once and stored before Spark starts the query. Spark asks a source for its first offset
repeatedly until a batch is committed: when it plans a range, when it reads it, and again after a crash. "The current
end of the journal" would be a different answer each time: a first batch planned to end at 517 was read as (518, 517],
so that 518 was delivered as backfill and again by the second batch.

The file `start.json` in the folder holds the initial offset and the format of the checkpoint:

    {"format": 2, "initial_offset": 517}

The format changes when the offsets (`offsets.OFFSET_FORMAT`) or the state of a query change. A checkpoint of another
format is never read: the caller deletes it and starts again.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec

from vedette.pipeline.offsets import OFFSET_FORMAT
from vedette.sources.journal.seam import open_journal

__all__ = ["delete_other_format", "initial_offset", "last_committed_offset"]

_START_FILE = "start.json"


class _Start(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    initial_offset: int


def delete_other_format(checkpoint: Path, format: int = OFFSET_FORMAT) -> bool:
    """Delete a checkpoint that was written in another format. Return True if there was one."""
    start = _read(checkpoint)
    if not checkpoint.exists() or (start is not None and start.format == format):
        return False
    shutil.rmtree(checkpoint)
    return True


def initial_offset(
    checkpoint: Path, journal_url: str, start: int | None = None, *, format: int = OFFSET_FORMAT
) -> int:
    """Return the stored initial offset. If there is none, store and return `start`, or the current end of the
    journal."""
    stored = _read(checkpoint)
    if stored is not None:
        return stored.initial_offset
    offset = _end_of_journal(journal_url) if start is None else start
    _write(checkpoint, _Start(format=format, initial_offset=offset))
    return offset


def last_committed_offset(checkpoint: Path) -> dict[str, Any] | None:
    """Return the end of the last batch that an earlier run delivered completely; None if there is none."""
    batches = [int(file.name) for file in (checkpoint / "commits").glob("*") if file.name.isdecimal()]
    if not batches:
        return None
    *_, offset = (checkpoint / "offsets" / str(max(batches))).read_text().splitlines()
    found: dict[str, Any] = json.loads(offset)
    return found


def _end_of_journal(url: str) -> int:
    journal = open_journal(url)
    try:
        return journal.last_offset()
    finally:
        journal.close()


def _read(checkpoint: Path) -> _Start | None:
    try:
        return msgspec.json.decode((checkpoint / _START_FILE).read_bytes(), type=_Start)
    except FileNotFoundError:
        return None


def _write(checkpoint: Path, start: _Start) -> None:
    """Write atomically and sync to disk before anything depends on it."""
    checkpoint.mkdir(parents=True, exist_ok=True)
    draft = checkpoint / f".{_START_FILE}"
    with draft.open("wb") as file:
        file.write(msgspec.json.encode(start))
        file.flush()
        os.fsync(file.fileno())
    draft.rename(checkpoint / _START_FILE)

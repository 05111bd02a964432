"""Create, check, migrate and open SQLite files.

A file is created under a temporary name and renamed when it is complete. An empty or partly written file is therefore
damaged, never a new database, and is refused.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from vedette.clock import Clock
from vedette.storage.meta import initial_meta, store_corrupt
from vedette.storage.seam import Durability
from vedette.storage.sqlite.errors import translate_errors
from vedette.storage.sqlite.migrations import APPLICATION_ID, SQLITE_MIGRATIONS, Migration, pending_migrations

__all__ = [
    "connect",
    "create_file",
    "extend_wal",
    "migrate_file",
    "open_reader",
    "open_writer",
    "sync_directory",
    "transaction",
]

BUSY_SECONDS = 10.0
"""Seconds to wait for another program (for example a SQLite shell) that locks the file."""
WAL_PAGES = 4_000
"""WAL pages (4 KiB) before a checkpoint, which runs inside a commit."""
WAL_BYTES_KEPT = 64 * 1024 * 1024
WAL_BYTES = WAL_PAGES * (4_096 + 24)
"""Size of the write-ahead log before it restarts."""
WAL_STEP_BYTES = 1024 * 1024
CACHE_KIB = 32 * 1024
SYNCHRONOUS: Mapping[Durability, str] = {"fsync": "FULL", "relaxed": "NORMAL"}


def create_file(path: Path, clock: Clock, migrations: tuple[Migration, ...] = SQLITE_MIGRATIONS) -> None:
    """Create an empty database at `path`, atomically."""
    draft = path.with_name(f"{path.name}.new")
    with translate_errors(str(path)):
        for leftover in (draft, draft.with_name(f"{draft.name}-journal")):
            leftover.unlink(missing_ok=True)
        with closing(connect(draft, "rwc")) as db, transaction(db):
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            _apply(db, migrations)
            db.executemany("INSERT INTO meta (key, value) VALUES (?, ?)", initial_meta(clock).items())
        draft.rename(path)
        sync_directory(path.parent)


def check_file(path: Path) -> None:
    """Detect damage that SQLite does not report: a file that looks like a new database, or pages of zeros."""
    size = path.stat().st_size
    if size == 0:
        raise store_corrupt(str(path), "the file is empty")
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size > 0:
        return  # a checkpoint may have been interrupted; SQLite repeats it
    with path.open("rb") as file:
        page_size = int.from_bytes(file.read(18)[16:], "big")
    if size % (65_536 if page_size == 1 else page_size or 512):
        raise store_corrupt(str(path), "the file ends in the middle of a page")


def migrate_file(
    db: sqlite3.Connection, place: str, migrations: tuple[Migration, ...] = SQLITE_MIGRATIONS
) -> None:
    """Migrate an existing file to the current format. Raises E6004 if it is not a Vedette file or is newer."""
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID or version < 1:
        raise store_corrupt(place, "its header is not that of a Vedette database")
    steps = pending_migrations(version, migrations, place)
    if steps:
        with transaction(db):
            _apply(db, steps)


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """Open a connection for one thread at a time. `mode` as in SQLite's URIs: ro, rw, rwc."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,  # one per number of rows up to a chunk, for each table
    )


def open_writer(path: Path, durability: Durability) -> sqlite3.Connection:
    """Open the writing connection: WAL, synced at every commit unless durability is relaxed."""
    db = connect(path, "rw")
    try:
        (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise OSError(0, "its file system does not support a write-ahead log; use a local disk")
        db.execute(f"PRAGMA synchronous = {SYNCHRONOUS[durability]}")
        db.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
        db.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")
        db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        db.execute("PRAGMA temp_store = MEMORY")
        if sys.platform == "darwin" and durability == "fsync":
            db.execute("PRAGMA fullfsync = ON")  # there a plain fsync does not reach the disk
    except BaseException:
        db.close()
        raise
    return db


def open_reader(path: Path) -> sqlite3.Connection:
    """Open a connection that reads committed data and never waits for a writer."""
    db = connect(path, "rw")  # not "ro": a reader may have to recover the WAL
    db.execute("PRAGMA query_only = ON")
    db.execute("PRAGMA cache_size = -2048")
    return db


def extend_wal(db: sqlite3.Connection, path: Path, wanted_bytes: int) -> bool:
    """Append one step of zeros to the WAL. Returns True when it is long enough.

    Syncing a growing file also writes the file system's journal and takes twice as long. SQLite treats zeros as the
    end of the log. Needs the write transaction, because no one else may write meanwhile.
    """
    with transaction(db):
        try:
            file = os.open(path.with_name(f"{path.name}-wal"), os.O_WRONLY)
        except FileNotFoundError:
            return True
        try:
            size = os.fstat(file).st_size
            step = min(WAL_STEP_BYTES, wanted_bytes - size)
            while step > 0:
                written = os.pwrite(file, bytes(step), size)
                size, step = size + written, step - written
            return size >= wanted_bytes
        finally:
            os.close(file)


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Commit the block, or roll back and re-raise."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            with suppress(sqlite3.Error):  # the first error is more useful than one of the rollback
                db.execute("ROLLBACK")
        raise


def sync_directory(path: Path) -> None:
    """Sync a directory after names in it were created or changed."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _apply(db: sqlite3.Connection, steps: tuple[Migration, ...]) -> None:
    for step in steps:
        for statement in step.statements:
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {step.version}")

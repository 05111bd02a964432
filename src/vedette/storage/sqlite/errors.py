"""Translate errors of SQLite and the operating system into StoreErrors.

Every text says what is wrong, where, and what to do. No exception of sqlite3 or the operating system leaves this
package.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from vedette.errors import StoreError

__all__ = ["from_os_error", "from_sqlite_error", "translate_errors"]

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def from_os_error(problem: OSError, place: str) -> StoreError:
    """E6001 for a full disk, E6003 for anything else that prevents using a directory."""
    words = problem.strerror or str(problem)
    if problem.errno in _FULL:
        text = f"no space left for {place} ({words}): free some space and open it again; nothing acknowledged is lost"
        return StoreError("E6001", text, fields={"place": place})
    text = f"cannot use {place} ({words}): it must be a directory that this user may read, write and search"
    return StoreError("E6003", text, fields={"place": place})


_LOCKED = "{place} is locked by another program {cause}: close the program that writes to it"
_DENIED = "{place} cannot be opened {cause}: give this user read and write permission"
_DAMAGED = "{place} is damaged {cause}: restore it from a backup, or recover readable data with `sqlite3 FILE .recover`"

# primary SQLite result code to (code, text); the name of the extended code is added in brackets
_SQLITE: dict[int, tuple[str, str]] = {
    sqlite3.SQLITE_FULL: (
        "E6001",
        "no space left for {place} {cause}: free some space and open it again; nothing acknowledged is lost",
    ),
    sqlite3.SQLITE_IOERR: (
        "E6001",
        "using {place} failed {cause}: check the disk and the system log; nothing acknowledged is lost",
    ),
    sqlite3.SQLITE_BUSY: ("E6001", _LOCKED),
    sqlite3.SQLITE_LOCKED: ("E6001", _LOCKED),
    sqlite3.SQLITE_READONLY: (
        "E6003",
        "{place} cannot be written {cause}: make the file and its directory writable for this user",
    ),
    sqlite3.SQLITE_PERM: ("E6003", _DENIED),
    sqlite3.SQLITE_AUTH: ("E6003", _DENIED),
    sqlite3.SQLITE_CANTOPEN: (
        "E6003",
        "{place} cannot be opened {cause}: this user needs read and write permission for file and directory",
    ),
    sqlite3.SQLITE_CORRUPT: ("E6004", _DAMAGED),
    sqlite3.SQLITE_ERROR: ("E6004", _DAMAGED),  # our statements are correct, so the tables are damaged
    sqlite3.SQLITE_NOTADB: (
        "E6004",
        "{place} is not a database of Vedette {cause}: restore it from a backup, or move the file away",
    ),
}
_OTHER = (
    "E6001",
    "using {place} failed {cause}: this is a defect in Vedette, please report it; nothing was written",
)


def from_sqlite_error(problem: sqlite3.Error, place: str) -> StoreError:
    """Convert an SQLite error to a StoreError; its fields keep the extended result code."""
    extended = getattr(problem, "sqlite_errorcode", None)
    name = getattr(problem, "sqlite_errorname", None) or type(problem).__name__
    if extended is not None:
        code, text = _SQLITE.get(extended & 0xFF, _OTHER)
    else:  # raised by Python: OperationalError if a text is not UTF-8
        code, text = ("E6004", _DAMAGED) if isinstance(problem, sqlite3.OperationalError) else _OTHER
    cause = f"({name}: {problem})"
    return StoreError(code, text.format(place=place, cause=cause), fields={"place": place, "sqlite": name})


@contextmanager
def translate_errors(place: str) -> Iterator[None]:
    """Convert every SQLite or operating system error inside the block to a StoreError."""
    try:
        yield
    except UnicodeDecodeError as problem:  # sqlite3 met text, or a message about it, that is not UTF-8
        raise StoreError(
            "E6004", _DAMAGED.format(place=place, cause="(text that is no UTF-8)"), fields={"place": place}
        ) from problem
    except sqlite3.Error as problem:
        raise from_sqlite_error(problem, place) from problem
    except OSError as problem:
        raise from_os_error(problem, place) from problem

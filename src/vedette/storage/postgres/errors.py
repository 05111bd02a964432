"""Translate PostgreSQL errors into StoreErrors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors

from vedette.errors import StoreError

__all__ = ["from_postgres_error", "is_connection_lost", "translate_connect_errors", "translate_errors"]

# The first match applies. Texts may use {place} and {cause}.
_ERROR_TABLE: tuple[tuple[type[psycopg.Error], str, str], ...] = (
    (
        errors.DiskFull,
        "E6001",
        "the server of {place} has no disk space left ({cause}): free some space; nothing acknowledged is lost",
    ),
    (
        errors.ReadOnlySqlTransaction,
        "E6003",
        "{place} is read-only ({cause}): use the address of the primary server, not of a standby",
    ),
    (
        errors.InsufficientPrivilege,
        "E6003",
        "this user may not write to {place} ({cause}): grant CREATE on the database, or connect as its owner",
    ),
    (
        errors.TooManyConnections,
        "E6003",
        "{place} accepts no more connections ({cause}): close some, or raise max_connections",
    ),
    (
        errors.LockNotAvailable,
        "E6001",
        "{place} is locked by another transaction ({cause}): end it; nothing acknowledged is lost",
    ),
    (
        errors.UndefinedTable,
        "E6004",
        "{place} is damaged ({cause}): restore it from a backup",
    ),
    (
        errors.UndefinedColumn,
        "E6004",
        "{place} is damaged ({cause}): restore it from a backup",
    ),
    (
        psycopg.OperationalError,
        "E6001",
        "the connection to {place} failed ({cause}): check the server; nothing acknowledged is lost",
    ),
)
_OTHER = (
    "E6001",
    "using {place} failed ({cause}): this batch was not written, and nothing acknowledged is lost",
)


def is_connection_lost(problem: psycopg.Error) -> bool:
    """True if the connection broke, so that the outcome of the transaction is unknown."""
    if isinstance(problem, errors.AdminShutdown | errors.CrashShutdown | errors.CannotConnectNow):
        return True
    return isinstance(problem, psycopg.OperationalError) and problem.sqlstate is None


def from_postgres_error(problem: psycopg.Error, place: str) -> StoreError:
    """Convert a PostgreSQL error to a StoreError; its fields keep the SQLSTATE."""
    cause = " ".join(str(problem).split()) or type(problem).__name__
    code, text = next(
        ((code, text) for kind, code, text in _ERROR_TABLE if isinstance(problem, kind)), _OTHER
    )
    fields = {"place": place, "sqlstate": problem.sqlstate}
    return StoreError(code, text.format(place=place, cause=cause), fields=fields)


@contextmanager
def translate_errors(place: str) -> Iterator[None]:
    """Convert every PostgreSQL error inside the block to a StoreError."""
    try:
        yield
    except psycopg.Error as problem:
        raise from_postgres_error(problem, place) from problem


@contextmanager
def translate_connect_errors(place: str) -> Iterator[None]:
    """The same for the first connection, where a failure means E6003: nothing could be lost."""
    try:
        with translate_errors(place):
            yield
    except StoreError as problem:
        if problem.code != "E6001":
            raise
        cause = " ".join(str(problem.__cause__).split())
        text = f"cannot reach {place} ({cause}): is the server running, and are address, user and password correct?"
        raise StoreError("E6003", text, fields=problem.fields) from problem.__cause__

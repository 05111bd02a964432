"""Helpers for store tests: an empty PostgreSQL database, and running without root rights."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import psycopg

__all__ = ["as_nobody", "fresh_database"]

NOBODY = 65534

_numbers = count(1)


@contextmanager
def fresh_database(url: str) -> Iterator[str]:
    """Return the address of an empty database on the same server; it is dropped at the end."""
    name = f"fresh_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f'CREATE DATABASE "{name}"'.encode())
        try:
            yield _with_database(url, name)
        finally:
            db.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


def _with_database(url: str, name: str) -> str:
    head, _, query = url.partition("?")
    return f"{head.rpartition('/')[0]}/{name}?{query}" if query else f"{head.rpartition('/')[0]}/{name}"


@contextmanager
def as_nobody() -> Iterator[None]:
    """If this process is root, act as a user without rights within the block, because root can open every file."""
    if os.geteuid() != 0:
        yield
        return
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)

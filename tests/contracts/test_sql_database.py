"""Both implementations of the SQL seam behave alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from threading import Thread

import psycopg
import pytest

from vedette.errors import StoreError
from vedette.storage.sql_database import NO_LIMIT, DatabaseSchema, SqlDatabase, open_database

SCHEMA = DatabaseSchema(
    name="contract",
    version=3,
    remedy="delete it",
    counter="items",
    notifies=True,
    tables=(
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT",
        "INSERT INTO meta VALUES ('items', 0)",
        "CREATE TABLE items (id SERIAL, name TEXT NOT NULL, paid BOOLEAN NOT NULL, image BLOB) STRICT",
    ),
)
_NUMBERS = count()


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "contract.db")
    server: str = request.getfixturevalue("postgres_url")
    name = f"sql_database_{next(_NUMBERS)}"
    with psycopg.connect(server, autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name}")
    return server.replace("/postgres?", f"/{name}?")


@pytest.fixture
def database(address: str) -> Iterator[SqlDatabase]:
    database = open_database(address, SCHEMA)
    yield database
    database.close()


def add(database: SqlDatabase, *names: str) -> None:
    with database.write() as db:
        db.execute_many("INSERT INTO items (name, paid) VALUES (?, ?)", [(name, True) for name in names])
        db.execute("UPDATE meta SET value = value + ? WHERE key = 'items'", (len(names),))
        db.notify()


def names(database: SqlDatabase) -> list[str]:
    with database.read() as db:
        return [name for (name,) in db.execute("SELECT name FROM items ORDER BY id LIMIT ?", (NO_LIMIT,))]


def test_common_dialect(database: SqlDatabase):
    with database.write() as db:
        rows = [(f"name {number}", number % 2 == 0, b"\0%d" % number) for number in range(130)]
        db.bulk_insert("items", ("name", "paid", "image"), rows)
        db.bulk_insert("items", ("name", "paid", "image"), [])
        assert db.execute("SELECT count(*) FROM items WHERE paid") == [(65,)]
        found = db.execute("SELECT image FROM items WHERE name = ANY(?)", (["name 7", "unknown"],))
        assert found == [(b"\x007",)]
        assert db.execute("SELECT id FROM items WHERE name = ANY(?)", ([],)) == []
        assert db.execute("SELECT greatest(id, ?), id % ? FROM items WHERE id = 3", (5, 2)) == [(5, 1)]
        assert db.execute("DELETE FROM items WHERE id > ? RETURNING id", (129,)) == [(130,)]
        assert db.execute("UPDATE items SET paid = ?", (False,)) == []


def test_texts_are_ordered_by_bytes(database: SqlDatabase):
    add(database, "b", "B", "a", "é")
    with database.read() as db:
        rows = db.execute("SELECT name FROM items ORDER BY name")
    assert [name for (name,) in rows] == ["B", "a", "b", "é"]


def test_exception_rolls_back(database: SqlDatabase):
    add(database, "kept")

    def delete_and_fail() -> None:
        with database.write() as db:
            db.execute("DELETE FROM items")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        delete_and_fail()
    assert names(database) == ["kept"]


def test_snapshot_sees_one_commit(database: SqlDatabase, address: str):
    add(database, "first")
    other = open_database(address, SCHEMA)
    with database.snapshot() as db:
        assert db.execute("SELECT count(*) FROM items") == [(1,)]
        add(other, "second")
        assert db.execute("SELECT count(*) FROM items") == [(1,)]
    assert names(database) == ["first", "second"]
    other.close()


def test_wait_ends_with_a_commit_of_another_connection(database: SqlDatabase, address: str):
    counter = database.change_counter()
    other = open_database(address, SCHEMA)
    thread = Thread(target=add, args=(other, "new"))
    thread.start()
    while database.change_counter() == counter:
        database.wait_for_commit(counter, 30.0)
    thread.join()
    other.close()
    assert names(database) == ["new"]


def test_own_commit_changes_the_counter(database: SqlDatabase):
    counter = database.change_counter()
    assert database.change_counter() == counter
    add(database, "new")
    assert database.change_counter() != counter
    database.wait_for_commit(counter, 30.0)  # returns at once


def test_database_with_another_format_is_refused(database: SqlDatabase, address: str):
    with pytest.raises(
        StoreError, match=r"has format 3, this version of Vedette needs format 4: delete it"
    ) as error:
        open_database(address, replace(SCHEMA, version=4))
    assert error.value.code == "E6004"
    assert error.value.fields["format"] == 3
    assert names(database) == []

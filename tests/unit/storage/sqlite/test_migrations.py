"""The SQLite file: its format, migrations, and reading it with other tools."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.paths import DATA
from tests.support.waiting import wait_until
from vedette.errors import StoreError
from vedette.storage.seam import Batch, ElementRecord, JournalRow, StoreInfo
from vedette.storage.sqlite.migrations import (
    APPLICATION_ID,
    POSTGRES_MIGRATIONS,
    SQLITE_MIGRATIONS,
    Migration,
)
from vedette.storage.sqlite.store import SqliteStore

CASES = DATA / "storage"
FORMAT_1, FORMAT_2 = CASES / "sqlite-format-1.sql", CASES / "sqlite-format-2.sql"

NEXT = SQLITE_MIGRATIONS[-1].version + 1
WITH_NEXT = (
    *SQLITE_MIGRATIONS,
    Migration(
        version=NEXT,
        summary="tags",
        statements=(
            "CREATE TABLE tags (name TEXT PRIMARY KEY) WITHOUT ROWID",
            "INSERT INTO tags SELECT DISTINCT type FROM elements",
        ),
    ),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a ? # %20.sqlite"


@pytest.fixture
def old(path: Path) -> Path:
    """A file of format 1, as that version wrote it."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript(FORMAT_1.read_text())
    return path


def query(path: Path, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(statement).fetchall()


def test_format_1_is_migrated(old: Path) -> None:
    store = SqliteStore(old)
    assert store.open_for_writing() == StoreInfo(
        epoch=1699999999999,
        boot_count=4,
        sequence=2,
        definitions=("node Task { title: String }", "edge needs(a: Task, b: Task)"),
        meta={"token": "abc"},
    )
    assert list(store.elements()) == [
        ElementRecord("n1", "Task", b'{"title":"dig"}'),
        ElementRecord("n2", "Task", b'{"title":"plant"}'),
        ElementRecord("e1", "needs", b"{}", ("n2", "n1")),
    ]
    first, second = store.read(3, 10)
    assert first == JournalRow(
        2, "t2", "Task", "n1", None, b'{"id":"n1","title":"dig"}', 1700000000000, "statement", seq=2, offset=4
    )
    assert (second.source, second.partition, second.seq, second.event_id) == ("shop", 3, 9, "ev-1")
    store.close()
    assert query(old, "PRAGMA user_version") == [(SQLITE_MIGRATIONS[-1].version,)]


def test_format_2_is_migrated_with_its_pending_batches(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(FORMAT_2.read_text())
    store = SqliteStore(path)
    for facts in (store.info(), store.open_for_writing()):  # before and after the pending batch is applied
        assert (facts.sequence, facts.meta) == (3, {"word": "new"})
        assert list(store.elements()) == [
            ElementRecord("n1", "Task", b'{"title":"dig"}'),
            ElementRecord("n3", "Task", b'{"title":"water"}'),
            ElementRecord("e1", "needs", b"{}", ("n2", "n1")),
            ElementRecord("e2", "needs", b"{}", ("n3", "e1")),
        ]
        assert [(line.offset, line.key, line.cause) for line in store.read(5, 9)] == [
            (6, "n3", "statement"),
            (7, "n2", None),
        ]
    assert query(path, "SELECT * FROM pending") == []
    store.close()


def test_migration_keeps_the_data(old: Path) -> None:
    SqliteStore(old, migrations=WITH_NEXT).close()
    assert query(old, "PRAGMA user_version") == [(NEXT,)]
    assert query(old, "SELECT name FROM tags ORDER BY name") == [("Task",), ("needs",)]
    store = SqliteStore(old, migrations=WITH_NEXT)
    assert store.open_for_writing().sequence == 2
    store.close()


def test_failed_migration_changes_nothing(old: Path) -> None:
    broken = Migration(version=NEXT, summary="broken", statements=("CREATE TABLE tags (name)", "NONSENSE"))
    with pytest.raises(StoreError):
        SqliteStore(old, migrations=(*SQLITE_MIGRATIONS, broken))
    assert query(old, "PRAGMA user_version") == [(1,)]
    assert query(old, "SELECT count(*) FROM sqlite_master WHERE name = 'tags'") == [(0,)]
    SqliteStore(old).close()


def test_newer_file_is_refused_unchanged(path: Path) -> None:
    SqliteStore(path, migrations=WITH_NEXT).close()
    before = path.read_bytes()
    with pytest.raises(StoreError) as caught:
        SqliteStore(path)
    assert caught.value.code == "E6004"
    assert f"has format {NEXT}" in str(caught.value)
    assert "newer" in str(caught.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize("migrations", [SQLITE_MIGRATIONS, POSTGRES_MIGRATIONS])
def test_versions_are_consecutive(migrations: tuple[Migration, ...]) -> None:
    assert [step.version for step in migrations] == list(range(1, len(migrations) + 1))


def test_file_is_readable_with_plain_sqlite(path: Path) -> None:
    store = SqliteStore(path)
    store.open_for_writing()
    image = json.dumps({"title": "grün", "n": 1}, ensure_ascii=False).encode()
    store.append(
        Batch(
            sequence=1,
            puts=[ElementRecord("n1", "Task", image), ElementRecord("e1", "joins", b"{}", ("n1", "n1"))],
            journal=[JournalRow(1, "t1", "Task", "n1", None, image, 5)],
        )
    )
    # While the store is open, from another connection, after the batch was applied.
    wait_until(lambda: not query(path, "SELECT * FROM pending"))
    sql = "SELECT typeof(attributes), attributes ->> 'title', targets ->> 1 FROM elements ORDER BY created"
    assert query(path, sql) == [("text", "grün", None), ("text", None, "n1")]
    assert query(path, "SELECT typeof(after), after ->> 'n', before, tick FROM journal") == [
        ("text", 1, None, 1)
    ]
    assert query(path, "SELECT value FROM meta WHERE key = 'store.tick'") == [("1",)]
    assert query(path, "PRAGMA application_id") == [(APPLICATION_ID,)]
    assert query(path, "PRAGMA journal_mode") == [("wal",)]
    store.close()


@pytest.mark.parametrize(("durability", "synchronous"), [("fsync", 2), ("relaxed", 1)])
def test_durability_sets_synchronous(path: Path, durability: str, synchronous: int) -> None:
    store = SqliteStore(path, durability=durability)  # type: ignore[arg-type]
    assert store._writer is not None
    assert store._writer.execute("PRAGMA synchronous").fetchone() == (synchronous,)
    store.close()


def test_interrupted_creation_is_repeated(path: Path) -> None:
    path.with_name(f"{path.name}.new").write_bytes(b"half a fi")
    store = SqliteStore(path)
    assert store.open_for_writing().boot_count == 1
    store.close()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_outdated_writer_is_fenced(path: Path) -> None:
    """No lock separates the two writers; the boot count does."""
    first, second = SqliteStore(path), SqliteStore(path)
    first.open_for_writing()
    first.append(Batch(sequence=1))
    second.open_for_writing()
    with pytest.raises(StoreError) as caught:
        first.append(Batch(sequence=2))
    assert caught.value.code == "E6002"
    assert "opened by another engine" in str(caught.value)
    second.append(Batch(sequence=2))
    for store in (first, second):
        store.close()


def test_journal_is_trimmed_in_steps(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vedette.storage.sqlite.store.TRIM_CHUNK_ROWS", 7)
    store = SqliteStore(path)
    store.append(
        Batch(sequence=1, journal=[JournalRow(1, "t", "T", "k", None, None, time) for time in range(50)])
    )
    assert store.trim(40) == 41
    assert [row.time_ms for row in store.read(40, 100)] == list(range(40, 50))
    store.close()

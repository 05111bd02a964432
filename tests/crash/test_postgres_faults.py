"""PostgreSQL fails between commits, during a commit, or because another engine took over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import psycopg
import pytest

from tests.support.faulty_disk import fresh_database
from tests.support.postgres_proxy import Cut, PostgresProxy
from vedette.errors import StoreError
from vedette.storage.catalog import open_catalog
from vedette.storage.postgres.catalog import PostgresCatalog
from vedette.storage.seam import Batch, ElementRecord, JournalRow, Store
from vedette.storage.sqlite.migrations import POSTGRES_MIGRATIONS, Migration

NEXT = POSTGRES_MIGRATIONS[-1].version + 1
WITH_NEXT = (
    *POSTGRES_MIGRATIONS,
    Migration(
        version=NEXT,
        summary="tags",
        statements=(
            "CREATE TABLE {schema}.tags (name text PRIMARY KEY)",
            "INSERT INTO {schema}.tags SELECT DISTINCT type FROM {schema}.elements",
        ),
    ),
)


@pytest.fixture
def url(postgres_url: str) -> Iterator[str]:
    with fresh_database(postgres_url) as url:
        yield url


def batch(tick: int) -> Batch:
    return Batch(
        sequence=tick,
        puts=[ElementRecord(f"n{tick}", "Task", b"{}")],
        journal=[JournalRow(tick, f"t{tick}", "Task", f"n{tick}", None, b"{}", 0)],
        meta=[("last", str(tick))],
    )


def check(store: Store, tick: int) -> None:
    assert store.info().sequence == tick
    assert sorted(record.id for record in store.elements()) == sorted(f"n{n}" for n in range(1, tick + 1))
    assert [row.tick for row in store.read(0, 100)] == list(range(1, tick + 1))


def disconnect_all(url: str, kind: str = "%") -> int:
    """End the engine's connections, as an administrator or a restart does."""
    with psycopg.connect(url, autocommit=True) as db:
        return len(
            db.execute(
                """SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
                WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name LIKE %s""",
                (kind,),
            ).fetchall()
        )


def test_connections_lost_between_commits_are_reopened(url: str) -> None:
    catalog = open_catalog(url)
    store = catalog.open("default")
    store.open_for_writing()
    for tick in range(1, 4):
        store.append(batch(tick))
        assert disconnect_all(url) >= 2, "the lock's connection and the store's"
        assert len(store.read(0, 9)) == tick, "reading, too"
        disconnect_all(url)
    store.append(batch(4))
    check(store, 4)
    with pytest.raises(StoreError) as caught:
        open_catalog(url)
    assert caught.value.code == "E6002", "the lock was taken again, too"
    catalog.close()


@pytest.mark.parametrize("cut", get_args(Cut))
def test_commit_with_lost_reply_is_written_once(url: str, cut: Cut) -> None:
    with PostgresProxy(url).running() as proxy:
        catalog = open_catalog(proxy.url)
        store = catalog.open("default")
        store.open_for_writing()
        store.append(batch(1))
        proxy.was_cut.clear()
        proxy.cut_next = cut
        last = store.append(batch(2))
        assert proxy.was_cut.is_set()
        assert last == store.last_offset()
        check(store, 2)
        store.append(batch(3))
        check(store, 3)
        catalog.close()


def test_lost_reply_without_boot_count_is_an_error(url: str) -> None:
    """A batch without an id cannot be recognized, so it is not repeated: the event ids of the caller decide."""
    with PostgresProxy(url).running() as proxy:
        catalog = open_catalog(proxy.url)
        store = catalog.open("default")
        row = JournalRow(0, "t", "shop::orders", "o1", None, b"{}", 0, source="shop", event_id="e1")
        proxy.cut_next = "after"
        with pytest.raises(StoreError) as caught:
            store.append(Batch(journal=[row]))
        assert caught.value.code == "E6001"
        store.append(Batch(journal=[row]))
        assert [line.event_id for line in store.read(0, 9)] == ["e1"]
        catalog.close()


def test_fenced_engine_cannot_write(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = open_catalog(url)
    store = first.open("default")
    store.open_for_writing()
    store.append(batch(1))
    assert disconnect_all(url)
    second = open_catalog(url)  # before the first engine can take its lock again
    other = second.open("default")
    assert other.open_for_writing().boot_count == 2
    other.append(batch(2))
    with pytest.raises(StoreError) as caught:
        store.append(batch(2))
    assert caught.value.code == "E6002"
    check(other, 2)
    # The boot count decides, even if the old connections still work.
    monkeypatch.setattr(first, "_ensure_lock", lambda: None)
    first._connections.before_connect = lambda: None  # type: ignore[attr-defined]
    with pytest.raises(StoreError, match="opened by another engine") as caught:
        store.append(batch(2))
    assert caught.value.code == "E6002"
    check(other, 2)
    first.close()
    second.close()


def test_server_that_stays_down_is_a_clear_error(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vedette.storage.postgres.store.RETRY_AFTER_SECONDS", (0.0, 0.01))
    with PostgresProxy(url).running() as proxy:
        catalog = open_catalog(proxy.url)
        store = catalog.open("default")
        store.open_for_writing()
        store.append(batch(1))
    disconnect_all(url)
    with pytest.raises(StoreError) as caught:
        store.append(batch(2))
    assert caught.value.code == "E6001"
    assert "nothing acknowledged is lost" in str(caught.value)
    catalog.close()
    catalog = open_catalog(url)
    store = catalog.open("default")
    store.open_for_writing()
    check(store, 1)
    catalog.close()


def test_no_server_at_the_address() -> None:
    with pytest.raises(StoreError) as caught:
        open_catalog("postgresql://somebody:secret@localhost:1/nothing?connect_timeout=2")
    assert caught.value.code == "E6003"
    assert "is the server running" in str(caught.value)
    assert "postgresql://localhost:1/nothing" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_invalid_address() -> None:
    with pytest.raises(StoreError) as caught:
        open_catalog("postgresql://user:hunter2@host:port:port/")
    assert caught.value.code == "E6003"
    assert "hunter2" not in str(caught.value)


def test_user_without_rights(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CREATE ROLE guest LOGIN")
    try:
        with pytest.raises(StoreError) as caught:
            open_catalog(url.replace("vedette@", "guest@"))
        assert caught.value.code == "E6003"
        assert "grant CREATE" in str(caught.value)
    finally:
        with psycopg.connect(url, autocommit=True) as db:
            db.execute("DROP ROLE guest")


def test_migration_keeps_data(url: str) -> None:
    catalog: PostgresCatalog | None = PostgresCatalog(url)
    assert catalog is not None
    store = catalog.open("a b")
    store.open_for_writing()
    store.append(batch(1))
    catalog.close()
    catalog = PostgresCatalog(url, migrations=WITH_NEXT)
    store = catalog.open("a b")
    assert store.open_for_writing().boot_count == 2
    check(store, 1)
    catalog.close()
    with psycopg.connect(url) as db:
        assert db.execute('SELECT name FROM "vedette_a b".tags').fetchall() == [("Task",)]
    catalog = PostgresCatalog(url)
    with pytest.raises(StoreError, match=f"has format {NEXT}") as caught:
        catalog.open("a b")
    assert caught.value.code == "E6004"
    catalog.close()


def test_missing_tables(url: str) -> None:
    catalog = open_catalog(url)
    store = catalog.open("default")
    store.open_for_writing()
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("DROP TABLE vedette_default.journal")
    with pytest.raises(StoreError, match="is damaged") as caught:
        store.append(batch(1))
    assert caught.value.code == "E6004"
    assert store.info().sequence == 0
    catalog.close()


@pytest.mark.parametrize(("durability", "setting"), [("fsync", "on"), ("relaxed", "off")])
def test_durability_setting_controls_synchronous_commit(url: str, durability: str, setting: str) -> None:
    catalog = PostgresCatalog(url, durability=durability)  # type: ignore[arg-type]
    with catalog._connections.connection() as db:
        assert db.execute("SHOW synchronous_commit").fetchone() == (setting,)
    catalog.close()

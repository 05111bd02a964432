"""An engine on PostgreSQL whose server fails: briefly, during a commit, permanently, or because another engine took
over.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from threading import Semaphore
from typing import get_args

import psycopg
import pytest

import vedette
from tests.support.databases import in_thread
from tests.support.faulty_disk import fresh_database
from tests.support.postgres_proxy import Cut, PostgresProxy
from tests.support.waiting import TIMEOUT_SECONDS
from vedette.engine.data_directory import Vedette
from vedette.errors import StoreError

ONTOLOGY = "node Task { title: String [unique] } edge after(a: Task, b: Task) {}"
PAIR = """BEGIN; SPAWN a: Task { title = $a }; SPAWN b: Task { title = $b }; LINK after(#a, #b); COMMIT"""


@pytest.fixture
def url(postgres_url: str) -> Iterator[str]:
    with fresh_database(postgres_url) as url:
        yield url


def disconnect_all(url: str) -> int:
    """End the engine's connections, as an administrator or a restart does."""
    with psycopg.connect(url, autocommit=True) as db:
        return len(
            db.execute(
                """SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
                WHERE datname = current_database() AND pid <> pg_backend_pid()"""
            ).fetchall()
        )


def titles(db: Vedette) -> list[str]:
    with db.session() as session:
        return sorted(row[0] for row in session.execute("MATCH t: Task RETURN t.title").rows)


def check_pairs(db: Vedette) -> int:
    """Check that only whole transactions are present, and return their number."""
    with db.session() as session:
        pairs = session.execute("MATCH after(a, b) RETURN a.title, b.title").rows
    assert all(f"{a}'" == b for a, b in pairs)
    assert len(titles(db)) == 2 * len(pairs)
    db.default.state.graph.validate()
    return len(pairs)


def write_pair(db: Vedette, name: str) -> None:
    with db.session() as session:
        session.run(PAIR, a=name, b=f"{name}'")


def test_connections_lost_during_writes(url: str) -> None:
    """No session notices: every commit is written once and acknowledged once."""
    threads, commits = 4, 30
    with vedette.open(url) as db:
        db.define(ONTOLOGY)
        written = Semaphore(0)

        def write(name: int) -> None:
            for number in range(commits):
                write_pair(db, f"{name}.{number}")
                written.release()

        works = [in_thread(partial(write, name)) for name in range(threads)]
        for _ in range(threads * commits // 5):
            for _ in range(5):  # a server that is always down is another test
                assert written.acquire(timeout=TIMEOUT_SECONDS)
            disconnect_all(url)
        for work in works:
            work.result(TIMEOUT_SECONDS)
        assert check_pairs(db) == threads * commits
    with vedette.open(url) as again:
        assert check_pairs(again) == threads * commits
        rows = again.default._store.read(0, 10_000)
        assert len({row.transaction for row in rows}) == threads * commits
        assert len(rows) == 3 * threads * commits


@pytest.mark.parametrize("cut", get_args(Cut))
def test_commit_with_lost_reply_is_acknowledged_once(url: str, cut: Cut) -> None:
    with PostgresProxy(url).running() as proxy, vedette.open(proxy.url) as db:
        db.define(ONTOLOGY)
        write_pair(db, "before")
        proxy.was_cut.clear()
        proxy.cut_next = cut
        write_pair(db, "cut")
        assert proxy.was_cut.is_set()
        write_pair(db, "after")
        assert check_pairs(db) == 3
        assert db.default.read_only is None
    with vedette.open(url) as again:
        assert check_pairs(again) == 3


def test_server_that_stays_down(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write fails. Nothing can be read either, so reads are refused too."""
    monkeypatch.setattr("vedette.storage.postgres.store.RETRY_AFTER_SECONDS", (0.0, 0.01))
    with PostgresProxy(url).running() as proxy:
        db = vedette.open(proxy.url)
        db.define(ONTOLOGY)
        write_pair(db, "kept")
    disconnect_all(url)
    assert check_pairs(db) == 1, "what is durable and in memory can be read without the server"
    with pytest.raises(StoreError) as caught:
        write_pair(db, "lost")
    assert caught.value.code == "E6001"
    assert "nothing acknowledged is lost" in str(caught.value)
    for _ in range(2):
        with pytest.raises(StoreError):
            titles(db)
        with pytest.raises(StoreError):
            write_pair(db, "lost")
    db.close()
    with vedette.open(url) as again:
        assert check_pairs(again) == 1
        write_pair(again, "more")


def test_engine_replaced_by_another_engine(url: str) -> None:
    """The engine lost its connections and its lock: it must not write, and must not show unwritten state."""
    first = vedette.open(url)
    first.define(ONTOLOGY)
    write_pair(first, "both")
    assert disconnect_all(url)
    with vedette.open(url) as second:  # before the first engine can take its lock again
        write_pair(second, "second")
        with pytest.raises(StoreError) as caught:
            write_pair(first, "first")
        assert caught.value.code == "E6002"
        with pytest.raises(StoreError) as caught:
            write_pair(first, "first")
        assert caught.value.code in {"E6002", "E6005"}
        assert check_pairs(second) == 2
        first.close()
        write_pair(second, "third")
    with vedette.open(url) as again:
        assert check_pairs(again) == 3


def test_errors_do_not_contain_the_password(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vedette.storage.postgres.store.RETRY_AFTER_SECONDS", ())
    secret = url.replace("vedette@", "vedette:hunter2@")
    db = vedette.open(secret)
    db.define(ONTOLOGY)
    texts = []
    for work in (
        lambda: vedette.open(secret),
        lambda: vedette.open(secret.replace("vedette:", "nobody:")),
        lambda: db.database(""),
    ):
        with pytest.raises(StoreError) as caught:
            work()
        texts.append(str(caught.value) + repr(caught.value.fields))
    db.close()
    with pytest.raises(StoreError) as caught:
        db.database("x")
    texts.append(str(caught.value))
    assert not [text for text in texts if "hunter2" in text]

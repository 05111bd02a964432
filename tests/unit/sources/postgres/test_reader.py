"""Tables of a real PostgreSQL server as collections."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any

import psycopg
import pytest

from vedette.clock import SystemClock
from vedette.errors import SourceError, VedetteError
from vedette.sources.images import decode_image
from vedette.sources.journal.seam import CollectionJournal, open_journal
from vedette.sources.postgres.reader import PostgresReader
from vedette.sources.reader import ExponentialBackoff
from vedette.sources.reader_loop import run_reader
from vedette.sources.records import Source
from vedette.testing import ManualClock

_NUMBERS = count()
TABLES = """
    CREATE TABLE orders (id int PRIMARY KEY, status text, total numeric, notes text, tags text[], extra jsonb,
        placed timestamptz);
    CREATE TABLE lines (order_id int, place int, sku text, PRIMARY KEY (order_id, place));
"""


FLUSHED = "-c synchronous_commit=on"


class Shop:
    """A database with a journal and a reader."""

    def __init__(self, server: str, data_directory: Path, **options: str) -> None:
        self.name = f"shop_{next(_NUMBERS)}"
        with psycopg.connect(server, autocommit=True) as db:
            db.execute(f"CREATE DATABASE {self.name}")
        self.address = server.replace("/postgres?", f"/{self.name}?")
        # Flush the WAL: only flushed changes are decoded, and the test server flushes late.
        self.db = psycopg.connect(self.address, autocommit=True, options=FLUSHED)
        self.db.execute(TABLES)
        self.journal = open_journal(data_directory)
        self.source = Source(
            name="shop", kind="postgres", address=self.address, options={"slot": self.name, **options}
        )
        self.journal.add_source(self.source)
        self.readers: list[PostgresReader] = []

    def reader(self) -> PostgresReader:
        reader = PostgresReader(self.source, self.journal, SystemClock())
        self.readers.append(reader)
        return reader

    def state(self, table: str = "orders") -> dict[str, Any]:
        page = self.journal.snapshot("default", f"shop::{table}")
        return {key: decode_image(image) for key, image in page.documents}

    def changes(self, after: int = 0) -> list[tuple[str, str, Any, Any]]:
        rows = self.journal.read(after, self.journal.last_offset())
        return [
            (r.op, r.key, r.before and decode_image(r.before), r.after and decode_image(r.after))
            for r in rows
        ]

    def close(self) -> None:
        self.db.close()
        for reader in self.readers:
            with suppress(VedetteError, psycopg.Error):
                reader.release_server_resources()
            reader.close()
        self.journal.close()


@pytest.fixture
def shop(postgres_url: str, tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(postgres_url, tmp_path)
    yield shop
    shop.close()


def poll_until_idle(reader: PostgresReader) -> None:
    while reader.poll(0)[0]:
        pass


def test_scan_then_stream(shop: Shop):
    shop.db.execute(
        "INSERT INTO orders VALUES (1, 'open', 12.5, 'x', '{a,b}', '{\"n\": [1, null]}', '2024-05-01T10:00:00.123456Z')"
    )
    reader = shop.reader()
    reader.start(scan=True)
    assert shop.state() == {
        "1": {
            "id": 1,
            "status": "open",
            "total": 12.5,
            "notes": "x",
            "tags": ["a", "b"],
            "extra": {"n": [1, None]},
            "placed": datetime(2024, 5, 1, 10, 0, 0, 123_000, tzinfo=UTC),
        }
    }
    shop.db.execute("INSERT INTO orders (id, status, total) VALUES (2, 'open', 3)")
    shop.db.execute("UPDATE orders SET status = 'paid' WHERE id = 1")
    shop.db.execute("DELETE FROM orders WHERE id = 2")
    poll_until_idle(reader)
    ops = [
        (op, key, before and before["status"], after and after["status"])
        for op, key, before, after in shop.changes()
    ]
    assert ops == [
        ("create", "1", None, "open"),
        ("create", "2", None, "open"),
        ("update", "1", "open", "paid"),
        ("delete", "2", "open", None),
    ]
    assert shop.state()["1"]["total"] == 12.5


def test_changes_during_the_scan_are_appended_once(shop: Shop):
    """A transaction that the scan saw is skipped; one that it did not see comes from the slot."""
    with psycopg.connect(shop.address, options=FLUSHED) as slow:
        slow.execute("INSERT INTO orders (id, status) VALUES (1, 'slow')")
        done = Flag()
        reader = shop.reader()

        def begin() -> None:
            reader.start(scan=True)
            done.set()

        thread = Thread(target=begin)
        thread.start()  # creating a slot waits for running transactions
        shop.db.execute("INSERT INTO orders (id, status) VALUES (2, 'quick')")
        slow.commit()
    thread.join()
    shop.db.execute("INSERT INTO orders (id, status) VALUES (3, 'after')")
    poll_until_idle(reader)
    assert sorted((op, key) for op, key, *_ in shop.changes()) == [
        ("create", "1"),
        ("create", "2"),
        ("create", "3"),
    ]


def test_reader_killed_before_confirming_appends_nothing_twice(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    reader = shop.reader()
    reader.start(scan=True)
    shop.db.execute("INSERT INTO orders (id) SELECT generate_series(1, 10)")
    append = shop.journal.append

    def append_and_die(*args: Any) -> Any:
        append(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(shop.journal, "append", append_and_die)
    with pytest.raises(KeyboardInterrupt):
        reader.poll(0)
    monkeypatch.undo()
    again = shop.reader()
    poll_until_idle(again)
    assert len(shop.changes()) == 10
    assert len(shop.state()) == 10


def test_large_transaction_with_changing_keys_and_columns(shop: Shop):
    reader = shop.reader()
    reader.start(scan=True)
    shop.db.execute(
        "INSERT INTO orders (id, status, notes)"
        " SELECT n, 'bulk', (SELECT string_agg(md5(n::text || m), '') FROM generate_series(1, 400) m)"
        " FROM generate_series(1, 2500) n"
    )
    poll_until_idle(reader)
    assert len(shop.state()) == 1000, "a page"
    assert len(shop.changes()) == 2500
    last = shop.journal.last_offset()
    shop.db.execute("ALTER TABLE orders ADD COLUMN colour text DEFAULT 'red'")
    shop.db.execute("UPDATE orders SET status = 'seen' WHERE id = 1")
    shop.db.execute("UPDATE orders SET id = 9999 WHERE id = 2")
    shop.db.execute("INSERT INTO lines VALUES (1, 1, 'a'), (1, 2, 'b')")
    shop.db.execute("TRUNCATE lines")
    poll_until_idle(reader)
    changes = shop.changes(last)
    op, key, before, after = changes[0]
    assert (op, key, after["status"], after["colour"]) == ("update", "1", "seen", "red")
    assert after["notes"] == before["notes"], "a large value that was not touched is not sent, and not lost"
    assert [change[:2] for change in changes[1:]] == [
        ("delete", "2"),
        ("create", "9999"),
        ("create", "[1, 1]"),
        ("create", "[1, 2]"),
        ("delete", "[1, 1]"),
        ("delete", "[1, 2]"),
    ]
    assert len(changes[2][3]["notes"]) == 32 * 400


def test_scan_recovers_from_a_dropped_slot(shop: Shop):
    reader = shop.reader()
    shop.db.execute("INSERT INTO orders (id, status) VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    reader.start(scan=True)
    shop.db.execute("SELECT pg_drop_replication_slot(%s)", (shop.name,))
    shop.db.execute("UPDATE orders SET status = 'x' WHERE id = 1")
    shop.db.execute("DELETE FROM orders WHERE id = 2")
    with pytest.raises(SourceError) as caught:
        reader.poll(0)
    assert caught.value.code == "E6105"
    last, stop = shop.journal.last_offset(), Flag()
    states: list[str] = []
    mark = shop.journal.set_state
    shop.journal.set_state = lambda s, state, *a, **k: (states.append(state), mark(s, state, *a, **k))[1]  # type: ignore[method-assign, func-returns-value]
    reading = Thread(target=run, args=(reader, shop.journal, shop.source, stop))
    reading.start()
    while "live" not in states:
        stop.wait(0.01)
    stop.set()
    reading.join()
    assert states == ["stale", "catching-up", "live"]
    assert [(op, key) for op, key, *_ in shop.changes(last)] == [("update", "1"), ("delete", "2")]


def run(reader: PostgresReader, journal: CollectionJournal, source: Source, stop: Flag) -> None:
    import random

    run_reader(reader, journal, source, stop, SystemClock(), ExponentialBackoff(random.Random(1)))


def test_problems_for_an_operator_raise_E6106(postgres_url: str, tmp_path: Path):
    shop = Shop(postgres_url, tmp_path, tables="nothing")
    try:
        with pytest.raises(SourceError, match="does not exist") as caught:
            shop.reader().start(scan=True)
        assert caught.value.code == "E6106"
    finally:
        shop.close()
    nowhere = Source(name="x", kind="postgres", address="postgresql://nobody@/x?host=/nowhere")
    with pytest.raises(SourceError) as caught:
        PostgresReader(nowhere, shop.journal, ManualClock())
    assert caught.value.code == "E6104"
    assert caught.value.retryable

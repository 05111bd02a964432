"""Unusual PostgreSQL tables: keys, names, partitions, values, and other readers of the slot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.unit.sources.postgres.test_reader import Shop, poll_until_idle
from vedette.clock import SystemClock
from vedette.errors import SourceError
from vedette.sources.journal.seam import open_journal
from vedette.sources.postgres import reader as reading
from vedette.sources.postgres.pgoutput import Begin
from vedette.sources.postgres.position import WatchedTable
from vedette.sources.postgres.reader import PostgresReader
from vedette.sources.records import Source


@pytest.fixture
def shop(postgres_url: str, tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(postgres_url, tmp_path)
    yield shop
    shop.close()


def start_reader(shop: Shop) -> PostgresReader:
    reader = shop.reader()
    reader.start(scan=True)
    return reader


def poll_with_table_check(reader: PostgresReader) -> None:
    """Poll as after ten idle seconds."""
    poll_until_idle(reader)
    reader._next_collection_check = 0.0
    poll_until_idle(reader)


# --- keys


@pytest.mark.parametrize(
    ("identity", "keys"), [("FULL", {"1", "3"}), ("USING INDEX orders_other", {"99", "13"})]
)
def test_scan_and_stream_use_the_same_key(shop: Shop, identity: str, keys: set[str]):
    shop.db.execute("ALTER TABLE orders ADD COLUMN other int NOT NULL DEFAULT 0")
    shop.db.execute("CREATE UNIQUE INDEX orders_other ON orders (other)")
    shop.db.execute(f"ALTER TABLE orders REPLICA IDENTITY {identity}")
    shop.db.execute("INSERT INTO orders (id, status, other) VALUES (1, 'a', 11), (2, 'b', 12)")
    reader = start_reader(shop)
    shop.db.execute("UPDATE orders SET status = 'x' WHERE id = 1")
    shop.db.execute("UPDATE orders SET other = 99 WHERE id = 1")
    shop.db.execute("DELETE FROM orders WHERE id = 2")
    shop.db.execute("INSERT INTO orders (id, other) VALUES (3, 13)")
    poll_until_idle(reader)
    assert set(shop.state()) == keys


def test_replica_identity_full_sends_before_images(shop: Shop):
    shop.db.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
    shop.db.execute("INSERT INTO orders (id, status) VALUES (1, 'a'), (2, 'b')")
    shop.reader().start(scan=False)
    shop.db.execute("UPDATE orders SET status = 'x' WHERE id = 1")
    shop.db.execute("DELETE FROM orders WHERE id = 2")
    poll_until_idle(shop.readers[0])
    assert [(op, key, before["status"]) for op, key, before, _ in shop.changes()] == [
        ("update", "1", "a"),
        ("delete", "2", "b"),
    ]


def test_unwatchable_tables_are_refused(postgres_url: str, tmp_path: Path):
    """Unselected tables are left out; a selected one is refused with the reason."""
    shop = Shop(postgres_url, tmp_path)
    shop.db.execute("CREATE UNLOGGED TABLE quick (id int PRIMARY KEY)")
    shop.db.execute("CREATE TABLE silent (id int PRIMARY KEY)")
    shop.db.execute("ALTER TABLE silent REPLICA IDENTITY NOTHING")
    shop.db.execute("INSERT INTO silent VALUES (1)")
    shop.db.execute("CREATE TABLE bare (id int)")
    shop.db.execute("ALTER TABLE bare REPLICA IDENTITY FULL")
    try:
        start_reader(shop)
        shop.db.execute("UPDATE silent SET id = 2")  # the server refuses the table in a publication
        for table, why in (("silent", "NOTHING"), ("bare", "no primary key"), ("quick", "kept in the log")):
            options = {"slot": "other", "tables": table}
            source = Source(name="shop", kind="postgres", address=shop.address, options=options)
            reader = PostgresReader(source, shop.journal, SystemClock())
            shop.readers.append(reader)
            with pytest.raises(SourceError, match=why) as caught:
                reader.start(scan=True)
            assert caught.value.code == "E6106"
    finally:
        shop.close()


def test_document_has_an_id(shop: Shop):
    """The column `id` if the table has one; else the key."""
    shop.db.execute("CREATE TABLE people (email text PRIMARY KEY)")
    shop.db.execute("INSERT INTO people VALUES ('a@x')")
    shop.db.execute("INSERT INTO orders (id) VALUES (1)")
    reader = start_reader(shop)
    shop.db.execute("INSERT INTO people VALUES ('b@x')")
    shop.db.execute("INSERT INTO lines VALUES (1, 2, 'sku')")
    poll_until_idle(reader)
    assert [row["id"] for row in shop.state("people").values()] == ["a@x", "b@x"]
    assert [row["id"] for row in shop.state("lines").values()] == ["[1, 2]"]
    assert [row["id"] for row in shop.state().values()] == [1]


# --- names, partitions, schema changes


def test_rows_of_partitions_are_rows_of_their_table(shop: Shop):
    shop.db.execute("CREATE TABLE logs (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)")
    shop.db.execute("CREATE TABLE logs_1 PARTITION OF logs FOR VALUES FROM (0) TO (100)")
    shop.db.execute("INSERT INTO logs VALUES (1, 'a')")
    reader = start_reader(shop)
    shop.db.execute("INSERT INTO logs VALUES (2, 'b')")
    shop.db.execute("CREATE TABLE logs_2 PARTITION OF logs FOR VALUES FROM (100) TO (200)")
    shop.db.execute("INSERT INTO logs VALUES (102, 'c')")
    shop.db.execute("UPDATE logs SET id = 150 WHERE id = 2")
    poll_until_idle(reader)
    assert set(shop.state("logs")) == {"1", "150", "102"}
    assert shop.journal.collections("default") == ["shop::logs"]


def test_names_that_need_quotes(shop: Shop):
    names = ['we"ird', "Größe", "a b", "x'; DROP TABLE orders; --", "a.b", "select"]
    for name in names:
        shop.db.execute(
            sql.SQL("CREATE TABLE {0} (id int PRIMARY KEY, {0} text)").format(sql.Identifier(name))
        )
    for name in names:
        shop.db.execute(sql.SQL("INSERT INTO {} VALUES (1, 'a')").format(sql.Identifier(name)))
    reader = start_reader(shop)
    for name in names:
        shop.db.execute(sql.SQL("INSERT INTO {} VALUES (2, 'b')").format(sql.Identifier(name)))
    poll_until_idle(reader)
    for name in names:
        assert shop.state(name) == {"1": {"id": 1, name: "a"}, "2": {"id": 2, name: "b"}}


def test_created_and_dropped_tables(shop: Shop):
    shop.db.execute("INSERT INTO lines VALUES (1, 1, 'a')")
    reader = start_reader(shop)
    shop.db.execute("CREATE TABLE later (id int PRIMARY KEY)")
    shop.db.execute("INSERT INTO later VALUES (1)")
    shop.db.execute("DROP TABLE lines")
    poll_with_table_check(reader)
    assert set(shop.state("later")) == {"1"}
    assert shop.state("lines") == {}
    shop.db.execute("INSERT INTO later VALUES (2)")
    poll_until_idle(shop.reader())
    assert set(shop.state("later")) == {"1", "2"}
    assert sorted(op for op, *_ in shop.changes()) == ["create", "create", "create", "delete"]


def test_new_table_waits_for_its_writers(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    """A row written before the publication and committed after the scan would be in neither."""
    monkeypatch.setattr(reading, "LOCK_TIMEOUT", "10ms")
    reader = start_reader(shop)
    shop.db.execute("CREATE TABLE later (id int PRIMARY KEY)")
    with psycopg.connect(shop.address) as slow:
        slow.execute("INSERT INTO later VALUES (1)")
        poll_with_table_check(reader)
        assert shop.state("later") == {}
        slow.execute("INSERT INTO later VALUES (2)")
    poll_with_table_check(reader)
    assert set(shop.state("later")) == {"1", "2"}


def test_reader_killed_before_scanning_a_new_table(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    reader = start_reader(shop)
    shop.db.execute("CREATE TABLE later (id int PRIMARY KEY)")
    shop.db.execute("INSERT INTO later VALUES (1)")

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(reader, "_rescan_tables", killed)
    with pytest.raises(KeyboardInterrupt):
        poll_with_table_check(reader)
    shop.db.execute("INSERT INTO later VALUES (2)")
    poll_with_table_check(shop.reader())
    assert set(shop.state("later")) == {"1", "2"}


@pytest.mark.parametrize("busy", [True, False], ids=["rows", "idle"])
@pytest.mark.parametrize(
    ("statement", "table", "key"),
    [
        ("ALTER TABLE orders RENAME TO commandes", "commandes", "1"),
        ("ALTER TABLE orders DROP CONSTRAINT orders_pkey, ADD PRIMARY KEY (status)", "orders", "x"),
        (
            "ALTER TABLE orders DROP CONSTRAINT orders_pkey, ADD PRIMARY KEY (id, status)",
            "orders",
            '[1, "x"]',
        ),
        ("ALTER TABLE orders RENAME id TO number", "orders", "1"),
    ],
)
def test_renamed_or_rekeyed_table_is_scanned_again(
    shop: Shop, statement: str, table: str, key: str, busy: bool
):
    shop.db.execute("INSERT INTO orders (id, status) VALUES (1, 'x')")
    reader = start_reader(shop)
    with shop.db.transaction():
        shop.db.execute("INSERT INTO lines VALUES (1, 1, 'a')")
        shop.db.execute("UPDATE orders SET total = 4")
        shop.db.execute(statement)
        if busy:
            shop.db.execute(f"UPDATE {table} SET total = 5")
            shop.db.execute("INSERT INTO lines VALUES (1, 2, 'b')")
    poll_until_idle(reader) if busy else poll_with_table_check(reader)
    assert {key: row["total"] for key, row in shop.state(table).items()} == {key: 5 if busy else 4}
    assert len(shop.state("lines")) == 1 + busy
    assert table == "orders" or shop.state("orders") == {}
    shop.db.execute(f"UPDATE {table} SET total = 6")
    poll_until_idle(reader)
    assert shop.state(table)[key]["total"] == 6


def test_columns_that_change_within_a_transaction(shop: Shop):
    shop.db.execute("INSERT INTO orders (id, status, total) VALUES (1, 'x', 3)")
    reader = start_reader(shop)
    with shop.db.transaction():
        shop.db.execute("UPDATE orders SET status = 'y'")
        shop.db.execute("ALTER TABLE orders RENAME status TO state")
        shop.db.execute("UPDATE orders SET state = 'z'")
        shop.db.execute("ALTER TABLE orders ALTER total TYPE text, DROP COLUMN placed")
        shop.db.execute("UPDATE orders SET total = 'much'")
    poll_until_idle(reader)
    rows_seen = [
        (after.get("status"), after.get("state"), after["total"]) for *_, after in shop.changes()[1:]
    ]
    assert rows_seen == [("y", None, 3), (None, "z", 3), (None, "z", "much")]
    assert "placed" not in shop.state()["1"]


# --- values

VALUES: list[tuple[str, Any]] = [
    ("'infinity'::timestamptz", "infinity"),
    ("'0044-03-15 BC'::timestamp", "0044-03-15 00:00:00 BC"),
    ("'20000-01-01'::timestamp", "20000-01-01 00:00:00"),
    ("'-infinity'::date", "-infinity"),
    ("'24:00'::time", "24:00:00"),
    ("'100000000 years'::interval", "100000000 years"),
    ("ARRAY['infinity'::timestamptz]", "{infinity}"),
    ("123456789012345678901234567890::numeric", 123456789012345678901234567890.0),
    ("'[1,5)'::int4range", "[1, 5)"),
    ("'(1,2)'::point", "(1,2)"),
    ("ARRAY[[1,2],[3,NULL]]", [[1, 2], [3, None]]),
    ("'2024-02-03'::date", "2024-02-03"),
    ("'\\xdeadbe'::bytea", "deadbe"),
    ("0.1::float8 + 0.2", 0.30000000000000004),
]


@pytest.mark.parametrize("setting", ["datestyle = 'German'", "intervalstyle = 'iso_8601'"])
def test_scanned_and_streamed_values_are_equal(shop: Shop, setting: str):
    for name in (setting, "bytea_output = 'escape'", "extra_float_digits = -5", "timezone = 'Asia/Tokyo'"):
        shop.db.execute(f"ALTER DATABASE {shop.name} SET {name}")
    columns = ", ".join(f"{text} AS c{place}" for place, (text, _) in enumerate(VALUES))
    shop.db.execute(f"CREATE TABLE odd AS SELECT 1 AS id, {columns}")
    shop.db.execute("ALTER TABLE odd ADD PRIMARY KEY (id)")
    reader = start_reader(shop)
    shop.db.execute(f"INSERT INTO odd SELECT 2, {columns}")
    poll_until_idle(reader)
    for document in shop.state("odd").values():
        assert [document[f"c{place}"] for place in range(len(VALUES))] == [value for _, value in VALUES]


def test_too_deep_json_is_quarantined(shop: Shop):
    deep = "(repeat('[', 3000) || repeat(']', 3000))::jsonb"
    shop.db.execute(f"INSERT INTO orders (id, extra) VALUES (1, {deep})")
    reader = start_reader(shop)
    shop.db.execute(f"INSERT INTO orders (id, extra) VALUES (2, {deep}), (3, '[]')")
    poll_until_idle(reader)
    assert set(shop.state()) == {"3"}
    assert ["deep" in item.reason for item in shop.journal.quarantined("shop")] == [True, True]


def test_unsent_unknown_value_is_fetched(shop: Shop):
    shop.db.execute(
        "INSERT INTO orders (id, status, notes)"
        " SELECT 1, 'a', (SELECT string_agg(md5(m::text), '') FROM generate_series(1, 400) m)"
    )
    reader = shop.reader()
    reader.start(scan=False)
    shop.db.execute("UPDATE orders SET status = 'b'")
    poll_until_idle(reader)
    assert len(shop.state()["1"]["notes"]) == 32 * 400


# --- crashes and slots of other readers


def test_interrupted_truncation_is_completed(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    """Fail at every append of a transaction that truncates a table and fills it again."""
    rows = "SELECT n, 'x' FROM generate_series(1, 2500) n"
    shop.db.execute(f"INSERT INTO orders (id, status) {rows}")
    reader = start_reader(shop)
    with shop.db.transaction():
        shop.db.execute("TRUNCATE orders")
        shop.db.execute(f"INSERT INTO orders (id, status) {rows} WHERE n > 1000")
        shop.db.execute("DELETE FROM orders WHERE id > 1001")
    append, cuts = shop.journal.append, 0

    def append_and_die(*args: Any) -> Any:
        append(*args)
        raise SourceError("E6104", "the line was cut")

    monkeypatch.setattr(shop.journal, "append", append_and_die)
    for _ in range(30):
        try:
            reader.poll(0)
        except SourceError:
            cuts += 1
    monkeypatch.undo()
    assert cuts > 5
    assert set(shop.state()) == {"1001"}
    assert len(shop.changes()) == 2500 + 2500 + 1500 + 1499


def test_recreated_slot_without_a_scan_is_a_lost_position(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    shop.db.execute("INSERT INTO orders (id) VALUES (1), (2)")
    reader = start_reader(shop)
    shop.db.execute("SELECT pg_drop_replication_slot(%s)", (shop.name,))
    shop.db.execute("DELETE FROM orders WHERE id = 1")

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(reader, "_scan", killed)
    with pytest.raises(KeyboardInterrupt):
        reader.start(scan=True)
    again = shop.reader()
    with pytest.raises(SourceError, match="E6105"):
        again.poll(0)
    again.start(scan=True)
    assert set(shop.state()) == {"2"}


def test_slot_read_by_another_program_is_a_lost_position(shop: Shop):
    reader = start_reader(shop)
    shop.db.execute("INSERT INTO orders (id) VALUES (1)")
    shop.db.execute(
        "SELECT count(*) FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, 'proto_version', '1',"
        " 'publication_names', %s)",
        (shop.name, shop.name),
    )
    with pytest.raises(SourceError, match="was read by another program") as caught:
        reader.poll(0)
    assert caught.value.code == "E6105"


def test_slot_of_another_journal_is_refused(shop: Shop, tmp_path: Path):
    """Two data directories have a source of the same name. The second must not take the changes of the first."""
    reader = start_reader(shop)
    other = open_journal(tmp_path / "other.db")
    other.add_source(shop.source)
    second = PostgresReader(shop.source, other, SystemClock())
    with pytest.raises(SourceError, match="--option slot=NAME") as caught:
        second.start(scan=True)
    assert caught.value.code == "E6106"
    second.release_server_resources()
    second.close()
    other.close()
    shop.db.execute("INSERT INTO orders (id) VALUES (1)")
    poll_until_idle(reader)
    assert set(shop.state()) == {"1"}


def test_idle_table_on_a_busy_server_does_not_retain_wal(shop: Shop):
    shop.db.execute("CREATE TABLE noise (v text)")
    reader = start_reader(shop)
    shop.db.execute("INSERT INTO noise SELECT repeat('x', 1000) FROM generate_series(1, 3000)")
    poll_with_table_check(reader)
    row = shop.db.execute(
        "SELECT pg_current_wal_lsn() - confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = %s",
        (shop.name,),
    ).fetchone()
    assert row is not None
    assert row[0] < 100_000
    shop.db.execute("INSERT INTO orders (id) VALUES (1)")
    poll_until_idle(shop.reader())
    assert set(shop.state()) == {"1"}


def test_scan_included_survives_transaction_id_wraparound():
    table = WatchedTable(
        oid=1, schema="public", name="t", keys=("id",), snapshot="1000:1010:1005,", scan_lsn=500
    )
    assert table.scan_included(Begin(lsn=499, time_us=0, xid=999))
    assert not table.scan_included(Begin(lsn=499, time_us=0, xid=1005))
    assert not table.scan_included(Begin(lsn=499, time_us=0, xid=1010))
    assert not table.scan_included(Begin(lsn=501, time_us=0, xid=999)), "committed after the scan"
    assert not table.scan_included(Begin(lsn=900, time_us=0, xid=(1010 + 2**31 + 5) % 2**32))


def test_broken_connection_is_reopened(shop: Shop):
    reader = start_reader(shop)
    shop.db.execute("SELECT pg_terminate_backend(%s)", (reader._db.info.backend_pid,))
    shop.db.execute("INSERT INTO orders (id) VALUES (1)")
    with pytest.raises(SourceError, match="E6104"):
        reader.poll(0)
    poll_until_idle(reader)
    assert set(shop.state()) == {"1"}

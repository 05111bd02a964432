"""Tables of PostgreSQL as people have them: other keys, names, partitions, values, and other readers of a slot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.unit.sources.postgres.test_reader import Shop, drained
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


def begun(shop: Shop) -> PostgresReader:
    reader = shop.reader()
    reader.start(scan=True)
    return reader


def looking(reader: PostgresReader) -> None:
    """As after ten idle seconds."""
    drained(reader)
    reader._next_collection_check = 0.0
    drained(reader)


# Keys


@pytest.mark.parametrize(
    ("identity", "keys"), [("FULL", {"1", "3"}), ("USING INDEX orders_other", {"99", "13"})]
)
def test_scan_and_stream_know_a_row_by_the_same_key(shop: Shop, identity: str, keys: set[str]):
    shop.db.execute("ALTER TABLE orders ADD COLUMN other int NOT NULL DEFAULT 0")
    shop.db.execute("CREATE UNIQUE INDEX orders_other ON orders (other)")
    shop.db.execute(f"ALTER TABLE orders REPLICA IDENTITY {identity}")
    shop.db.execute("INSERT INTO orders (id, status, other) VALUES (1, 'a', 11), (2, 'b', 12)")
    reader = begun(shop)
    shop.db.execute("UPDATE orders SET status = 'x' WHERE id = 1")
    shop.db.execute("UPDATE orders SET other = 99 WHERE id = 1")
    shop.db.execute("DELETE FROM orders WHERE id = 2")
    shop.db.execute("INSERT INTO orders (id, other) VALUES (3, 13)")
    drained(reader)
    assert set(shop.state()) == keys


def test_who_tells_whole_rows_tells_what_was_before_ever_we_looked(shop: Shop):
    shop.db.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
    shop.db.execute("INSERT INTO orders (id, status) VALUES (1, 'a'), (2, 'b')")
    shop.reader().start(scan=False)
    shop.db.execute("UPDATE orders SET status = 'x' WHERE id = 1")
    shop.db.execute("DELETE FROM orders WHERE id = 2")
    drained(shop.readers[0])
    assert [(op, key, before["status"]) for op, key, before, _ in shop.changes()] == [
        ("update", "1", "a"),
        ("delete", "2", "b"),
    ]


def test_tables_that_cannot_be_watched(postgres_url: str, tmp_path: Path):
    """Those that nobody asked for are left out; one that somebody asked for is refused, with the reason."""
    shop = Shop(postgres_url, tmp_path)
    shop.db.execute("CREATE UNLOGGED TABLE quick (id int PRIMARY KEY)")
    shop.db.execute("CREATE TABLE silent (id int PRIMARY KEY)")
    shop.db.execute("ALTER TABLE silent REPLICA IDENTITY NOTHING")
    shop.db.execute("INSERT INTO silent VALUES (1)")
    shop.db.execute("CREATE TABLE bare (id int)")
    shop.db.execute("ALTER TABLE bare REPLICA IDENTITY FULL")
    try:
        begun(shop)
        shop.db.execute("UPDATE silent SET id = 2")  # the server refuses it in a publication
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


def test_a_document_has_an_id(shop: Shop):
    """The column of that name as it is, where there is one; else the key."""
    shop.db.execute("CREATE TABLE people (email text PRIMARY KEY)")
    shop.db.execute("INSERT INTO people VALUES ('a@x')")
    shop.db.execute("INSERT INTO orders (id) VALUES (1)")
    reader = begun(shop)
    shop.db.execute("INSERT INTO people VALUES ('b@x')")
    shop.db.execute("INSERT INTO lines VALUES (1, 2, 'sku')")
    drained(reader)
    assert [row["id"] for row in shop.state("people").values()] == ["a@x", "b@x"]
    assert [row["id"] for row in shop.state("lines").values()] == ["[1, 2]"]
    assert [row["id"] for row in shop.state().values()] == [1]


# Names, partitions, schema changes


def test_rows_of_partitions_are_rows_of_their_table(shop: Shop):
    shop.db.execute("CREATE TABLE logs (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)")
    shop.db.execute("CREATE TABLE logs_1 PARTITION OF logs FOR VALUES FROM (0) TO (100)")
    shop.db.execute("INSERT INTO logs VALUES (1, 'a')")
    reader = begun(shop)
    shop.db.execute("INSERT INTO logs VALUES (2, 'b')")
    shop.db.execute("CREATE TABLE logs_2 PARTITION OF logs FOR VALUES FROM (100) TO (200)")
    shop.db.execute("INSERT INTO logs VALUES (102, 'c')")
    shop.db.execute("UPDATE logs SET id = 150 WHERE id = 2")
    drained(reader)
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
    reader = begun(shop)
    for name in names:
        shop.db.execute(sql.SQL("INSERT INTO {} VALUES (2, 'b')").format(sql.Identifier(name)))
    drained(reader)
    for name in names:
        assert shop.state(name) == {"1": {"id": 1, name: "a"}, "2": {"id": 2, name: "b"}}


def test_tables_that_come_and_go(shop: Shop):
    shop.db.execute("INSERT INTO lines VALUES (1, 1, 'a')")
    reader = begun(shop)
    shop.db.execute("CREATE TABLE later (id int PRIMARY KEY)")
    shop.db.execute("INSERT INTO later VALUES (1)")
    shop.db.execute("DROP TABLE lines")
    looking(reader)
    assert set(shop.state("later")) == {"1"}
    assert shop.state("lines") == {}
    shop.db.execute("INSERT INTO later VALUES (2)")
    drained(shop.reader())
    assert set(shop.state("later")) == {"1", "2"}
    assert sorted(op for op, *_ in shop.changes()) == ["create", "create", "create", "delete"]


def test_a_new_table_is_not_taken_up_while_somebody_writes_to_it(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    """What was written before it is published and committed after its scan would be in neither."""
    monkeypatch.setattr(reading, "LOCK_TIMEOUT", "10ms")
    reader = begun(shop)
    shop.db.execute("CREATE TABLE later (id int PRIMARY KEY)")
    with psycopg.connect(shop.address) as slow:
        slow.execute("INSERT INTO later VALUES (1)")
        looking(reader)
        assert shop.state("later") == {}
        slow.execute("INSERT INTO later VALUES (2)")
    looking(reader)
    assert set(shop.state("later")) == {"1", "2"}


def test_a_reader_that_was_killed_before_the_scan_of_a_new_table(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    reader = begun(shop)
    shop.db.execute("CREATE TABLE later (id int PRIMARY KEY)")
    shop.db.execute("INSERT INTO later VALUES (1)")

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(reader, "_rescan_tables", killed)
    with pytest.raises(KeyboardInterrupt):
        looking(reader)
    shop.db.execute("INSERT INTO later VALUES (2)")
    looking(shop.reader())
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
def test_a_table_with_another_name_or_key_is_compared_anew(
    shop: Shop, statement: str, table: str, key: str, busy: bool
):
    shop.db.execute("INSERT INTO orders (id, status) VALUES (1, 'x')")
    reader = begun(shop)
    with shop.db.transaction():
        shop.db.execute("INSERT INTO lines VALUES (1, 1, 'a')")
        shop.db.execute("UPDATE orders SET total = 4")
        shop.db.execute(statement)
        if busy:
            shop.db.execute(f"UPDATE {table} SET total = 5")
            shop.db.execute("INSERT INTO lines VALUES (1, 2, 'b')")
    drained(reader) if busy else looking(reader)
    assert {key: row["total"] for key, row in shop.state(table).items()} == {key: 5 if busy else 4}
    assert len(shop.state("lines")) == 1 + busy
    assert table == "orders" or shop.state("orders") == {}
    shop.db.execute(f"UPDATE {table} SET total = 6")
    drained(reader)
    assert shop.state(table)[key]["total"] == 6


def test_columns_that_change_within_a_transaction(shop: Shop):
    shop.db.execute("INSERT INTO orders (id, status, total) VALUES (1, 'x', 3)")
    reader = begun(shop)
    with shop.db.transaction():
        shop.db.execute("UPDATE orders SET status = 'y'")
        shop.db.execute("ALTER TABLE orders RENAME status TO state")
        shop.db.execute("UPDATE orders SET state = 'z'")
        shop.db.execute("ALTER TABLE orders ALTER total TYPE text, DROP COLUMN placed")
        shop.db.execute("UPDATE orders SET total = 'much'")
    drained(reader)
    told = [(after.get("status"), after.get("state"), after["total"]) for *_, after in shop.changes()[1:]]
    assert told == [("y", None, 3), (None, "z", 3), (None, "z", "much")]
    assert "placed" not in shop.state()["1"]


# Values

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
def test_values_are_the_same_scanned_and_streamed_whatever_the_server_likes(shop: Shop, setting: str):
    for name in (setting, "bytea_output = 'escape'", "extra_float_digits = -5", "timezone = 'Asia/Tokyo'"):
        shop.db.execute(f"ALTER DATABASE {shop.name} SET {name}")
    columns = ", ".join(f"{text} AS c{place}" for place, (text, _) in enumerate(VALUES))
    shop.db.execute(f"CREATE TABLE odd AS SELECT 1 AS id, {columns}")
    shop.db.execute("ALTER TABLE odd ADD PRIMARY KEY (id)")
    reader = begun(shop)
    shop.db.execute(f"INSERT INTO odd SELECT 2, {columns}")
    drained(reader)
    for document in shop.state("odd").values():
        assert [document[f"c{place}"] for place in range(len(VALUES))] == [value for _, value in VALUES]


def test_json_that_is_too_deep_goes_to_the_quarantine_and_the_stream_goes_on(shop: Shop):
    deep = "(repeat('[', 3000) || repeat(']', 3000))::jsonb"
    shop.db.execute(f"INSERT INTO orders (id, extra) VALUES (1, {deep})")
    reader = begun(shop)
    shop.db.execute(f"INSERT INTO orders (id, extra) VALUES (2, {deep}), (3, '[]')")
    drained(reader)
    assert set(shop.state()) == {"3"}
    assert ["deep" in item.reason for item in shop.journal.quarantined("shop")] == [True, True]


def test_a_value_that_was_not_sent_and_never_seen_is_asked_for(shop: Shop):
    shop.db.execute(
        "INSERT INTO orders (id, status, notes)"
        " SELECT 1, 'a', (SELECT string_agg(md5(m::text), '') FROM generate_series(1, 400) m)"
    )
    reader = shop.reader()
    reader.start(scan=False)
    shop.db.execute("UPDATE orders SET status = 'b'")
    drained(reader)
    assert len(shop.state()["1"]["notes"]) == 32 * 400


# Crashes, and slots of others


def test_a_truncation_that_is_cut_in_the_middle(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    """At every append of a transaction that truncates and fills again: what was lost of it is made up for exactly."""
    rows = "SELECT n, 'x' FROM generate_series(1, 2500) n"
    shop.db.execute(f"INSERT INTO orders (id, status) {rows}")
    reader = begun(shop)
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


def test_a_slot_that_was_made_anew_without_its_scan_is_lost_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
):
    shop.db.execute("INSERT INTO orders (id) VALUES (1), (2)")
    reader = begun(shop)
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


def test_a_slot_that_somebody_else_read_has_lost_changes(shop: Shop):
    reader = begun(shop)
    shop.db.execute("INSERT INTO orders (id) VALUES (1)")
    shop.db.execute(
        "SELECT count(*) FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, 'proto_version', '1',"
        " 'publication_names', %s)",
        (shop.name, shop.name),
    )
    with pytest.raises(SourceError, match="was read by another program") as caught:
        reader.poll(0)
    assert caught.value.code == "E6105"


def test_another_journal_does_not_take_the_slot(shop: Shop, tmp_path: Path):
    """Two data directories, each with a source of the same name: the second would make the first lose changes."""
    reader = begun(shop)
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
    drained(reader)
    assert set(shop.state()) == {"1"}


def test_a_quiet_table_on_a_busy_server_does_not_keep_the_log(shop: Shop):
    shop.db.execute("CREATE TABLE noise (v text)")
    reader = begun(shop)
    shop.db.execute("INSERT INTO noise SELECT repeat('x', 1000) FROM generate_series(1, 3000)")
    looking(reader)
    row = shop.db.execute(
        "SELECT pg_current_wal_lsn() - confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = %s",
        (shop.name,),
    ).fetchone()
    assert row is not None
    assert row[0] < 100_000
    shop.db.execute("INSERT INTO orders (id) VALUES (1)")
    drained(shop.reader())
    assert set(shop.state()) == {"1"}


def test_what_a_scan_saw_is_not_asked_of_numbers_that_came_round_again():
    table = WatchedTable(
        oid=1, schema="public", name="t", keys=("id",), snapshot="1000:1010:1005,", scan_lsn=500
    )
    assert table.scan_included(Begin(lsn=499, time_us=0, xid=999))
    assert not table.scan_included(Begin(lsn=499, time_us=0, xid=1005))
    assert not table.scan_included(Begin(lsn=499, time_us=0, xid=1010))
    assert not table.scan_included(Begin(lsn=501, time_us=0, xid=999)), "committed after the scan"
    assert not table.scan_included(Begin(lsn=900, time_us=0, xid=(1010 + 2**31 + 5) % 2**32))


def test_a_line_that_was_cut_is_made_anew(shop: Shop):
    reader = begun(shop)
    shop.db.execute("SELECT pg_terminate_backend(%s)", (reader._db.info.backend_pid,))
    shop.db.execute("INSERT INTO orders (id) VALUES (1)")
    with pytest.raises(SourceError, match="E6104"):
        reader.poll(0)
    drained(reader)
    assert set(shop.state()) == {"1"}

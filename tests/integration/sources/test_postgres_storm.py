"""Random steps on a PostgreSQL source: in the end the journal has the rows of the tables.

Steps are statements that change rows, tables and keys, appends that fail before or after the commit, killed readers,
slots that are dropped or read by another program, and broken connections. Each seed is one sequence of steps.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.support.source_storm import SourceStorm, append_in_pieces
from tests.unit.sources.postgres.test_reader import Shop
from vedette.sources.images import decode_image
from vedette.sources.postgres import transactions

BIG = "(SELECT string_agg(md5(m::text || {n}), '') FROM generate_series(1, 120) m)"


class Storm(SourceStorm):
    def __init__(self, shop: Shop, rng: Random) -> None:
        super().__init__(shop, rng)
        self.tables = ["orders"]
        self.statements: list[str] = []

    # --- steps

    def rows(self, table: str) -> str:
        n = self.rng.randrange(8)
        return self.rng.choice(
            [
                f"INSERT INTO {table} (id, status, notes) VALUES ({n}, 'a', {BIG.format(n=n)}) ON CONFLICT DO NOTHING",
                f"INSERT INTO {table} (id, status) SELECT g, 'b' FROM generate_series(1, 12) g ON CONFLICT DO NOTHING",
                f"UPDATE {table} SET status = status || 'x' WHERE id <= {n}",
                f"UPDATE {table} SET notes = {BIG.format(n=n)} WHERE id = {n}",
                f"UPDATE {table} SET id = id + 20 WHERE id = {n}",
                f"DELETE FROM {table} WHERE id = {n}",
                f"TRUNCATE {table}",
            ]
        )

    def form(self, table: str) -> str:
        return self.rng.choice(
            [
                f"ALTER TABLE {table} REPLICA IDENTITY FULL",
                f"ALTER TABLE {table} REPLICA IDENTITY DEFAULT",
                f"ALTER TABLE {table} ADD COLUMN c{self.rng.randrange(10**6)} int DEFAULT 1",
                f"ALTER TABLE {table} RENAME TO t{self.rng.randrange(10**6)}",
                f"CREATE TABLE t{self.rng.randrange(10**6)} (id int PRIMARY KEY, status text, notes text)",
            ]
        )

    def write(self) -> None:
        statements = [self.rows(self.rng.choice(self.tables)) for _ in range(self.rng.randrange(1, 5))]
        if self.rng.random() < 0.15:
            statements = [self.form(self.rng.choice(self.tables))]
        self.statements += statements
        with suppress(psycopg.errors.UniqueViolation), self.shop.db.transaction():
            for statement in statements:
                self.shop.db.execute(statement)
        self.tables = self.there()

    def there(self) -> list[str]:
        rows = self.shop.db.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
        return [name for (name,) in rows.fetchall()]

    def reader_is_cut_off(self) -> bool:
        return bool(self.reader._db.closed)

    def lose_position(self) -> None:
        name = (self.shop.name,)
        with suppress(psycopg.Error):
            self.shop.db.execute(
                self.rng.choice(
                    [
                        "SELECT pg_drop_replication_slot(%s)",
                        "SELECT pg_replication_slot_advance(%s, pg_current_wal_flush_lsn())",
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND state = 'idle'",
                    ]
                ),
                name,
            )

    # --- checks

    def compare(self) -> None:
        expected = {table: self.table(table) for table in self.there()}
        found: dict[str, dict[str, Any]] = {table: {} for table in expected}
        for collection in self.shop.journal.collections("default"):
            page = self.shop.journal.snapshot("default", collection)
            found[collection.removeprefix("shop::")] = {
                key: decode_image(image) for key, image in page.documents
            }
        for table in expected.keys() | found.keys():
            assert _appended(found.get(table)) == _appended(expected.get(table)), (table, self.statements)
        self.chain()

    def table(self, table: str) -> dict[str, Any]:
        cursor = self.shop.db.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table)))
        assert cursor.description is not None
        names = [column.name for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        return {str(row["id"]): row for row in rows}

    def chain(self) -> None:
        """The before image of every change is the after image of the previous change of its document."""
        last: dict[tuple[str, str], bytes | None] = {}
        for row in self.shop.journal.read(0, self.shop.journal.last_offset()):
            before = decode_image(row.before) if row.before is not None else None
            known = last.get((row.collection, row.key))
            assert (known is None) == (before is None), (row.collection, row.key, row.op)
            last[row.collection, row.key] = row.after


def _appended(rows: dict[str, Any] | None) -> Any:
    """Columns that were added later appear with the next change of a row, so they are not compared."""
    return {key: (row["id"], row["status"], row["notes"]) for key, row in (rows or {}).items()}


def storm(server: str, data_directory: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    append_in_pieces(monkeypatch, transactions)
    shop = Shop(server, data_directory)
    shop.db.execute("DROP TABLE orders; DROP TABLE lines")
    shop.db.execute("CREATE TABLE orders (id int PRIMARY KEY, status text, notes text)")
    run = Storm(shop, Random(seed))
    run.run_steps(
        [run.write] * 6 + [run.poll_once] * 4 + [run.kill_reader, run.lose_position],
        times=40,
        polls=20,
    )


@pytest.mark.parametrize("seed", range(2))
def test_journal_equals_the_tables(
    postgres_url: str, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
):
    storm(postgres_url, tmp_path, seed, monkeypatch)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 300))
def test_many_storms(postgres_url: str, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch):
    storm(postgres_url, tmp_path, seed, monkeypatch)

"""End to end with real processes: PostgreSQL ▸ journal ▸ Spark ▸ gateway ▸ client, while processes are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from random import Random
from threading import Event as Flag
from threading import Thread

import psycopg
import pytest

from tests.spark.processes import PROGRAM, ClientView, connected, free_port, served
from vedette.clock import SystemClock

WATCH = "WATCH o: shop::orders WHERE o.total > 100 RETURN o.id, o.total"
LAST = 1_000_000


@pytest.fixture
def shop(postgres_url: str) -> str:
    """Create a database with a table of orders."""
    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute("CREATE DATABASE end_to_end")
    address = postgres_url.replace("/postgres?", "/end_to_end?")
    with psycopg.connect(address, autocommit=True) as db:
        db.execute("CREATE TABLE orders (id int PRIMARY KEY, total int)")
        db.execute("INSERT INTO orders SELECT n, n * 50 FROM generate_series(1, 6) n")
    return address


class Writer(Thread):
    """Changes the table continuously until `stop`, which writes the last change."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._db = psycopg.connect(address, autocommit=True, options="-c synchronous_commit=on")
        self._random, self._stop_requested = Random(5), Flag()

    def run(self) -> None:
        while not self._stop_requested.wait(0.02):
            id, total = self._random.randrange(1, 30), self._random.randrange(200)
            if self._random.random() < 0.2:
                self._db.execute("DELETE FROM orders WHERE id = %s", (id,))
            else:
                self._db.execute(
                    "INSERT INTO orders VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET total = excluded.total",
                    (id, total),
                )

    def stop(self) -> dict[int, int]:
        """Stop writing. Return the rows that the watch matches."""
        self._stop_requested.set()
        self.join()
        self._db.execute("INSERT INTO orders VALUES (%s, 101)", (LAST,))
        found = self._db.execute("SELECT id, total FROM orders WHERE total > 100").fetchall()
        self._db.close()
        return dict(found)  # `o.id` is the column of that name, a number, and not the key


def pipeline_pid(folder: Path) -> int | None:
    try:
        status = json.loads((folder / "data" / "pipeline.json").read_text())
    except (OSError, ValueError):
        return None
    return int(status["pid"]) if status["state"] == "running" else None


@pytest.mark.timeout(900)  # Spark starts twice
def test_no_change_is_lost_or_duplicated_while_processes_are_killed(shop: str, tmp_path: Path):
    slot = "end_to_end"
    options = ["--name", "shop", "--option", "tables=orders", "--option", f"slot={slot}"]
    subprocess.run(
        [PROGRAM, "source", "add", "postgres", shop, *options], cwd=tmp_path, check=True, timeout=200
    )
    port, view, clock, pause = free_port(), ClientView(), SystemClock(), Flag()
    with served(tmp_path, port, "--workers", "1") as supervisor, connected(port) as client:
        watch = client.watch(WATCH)
        writer = Writer(shop)

        def follow(count: int) -> None:
            target = view.events + count
            while view.events < target:
                event = watch.next(timeout=240)
                assert event is not None, (tmp_path / "serve.out").read_text()
                view.apply(event)

        follow(1)  # the snapshot, which may be empty: the pipeline performs the first scan
        writer.start()
        follow(30)
        killed = pipeline_pid(tmp_path)
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        supervisor.send_signal(signal.SIGHUP)  # restarts the gateway's worker
        until = clock.monotonic() + 240
        while pipeline_pid(tmp_path) in (None, killed):
            assert clock.monotonic() < until, (tmp_path / "serve.out").read_text()
            pause.wait(0.2)
        expected = writer.stop()
        while (
            view.rows != expected
        ):  # partitions are not ordered among each other, so the last change may not arrive last
            follow(1)
    subprocess.run([PROGRAM, "source", "remove", "shop"], cwd=tmp_path, check=True, timeout=200)

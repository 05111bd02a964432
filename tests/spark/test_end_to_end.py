"""The whole way with real processes: PostgreSQL ▸ journal ▸ Spark ▸ gateway ▸ client, while parts of it are killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from threading import Event as Flag
from threading import Thread
from typing import Any

import psycopg
import pytest

import vedette
from vedette.client.blocking import connect_sync
from vedette.clock import SystemClock

PROGRAM = str(Path(sys.executable).with_name("vedette"))
WATCH = "WATCH o: shop::orders WHERE o.total > 100 RETURN o.id, o.total"
LAST = 1_000_000


@pytest.fixture
def shop(postgres_url: str) -> str:
    """A database with a table of orders."""
    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute("CREATE DATABASE end_to_end")
    address = postgres_url.replace("/postgres?", "/end_to_end?")
    with psycopg.connect(address, autocommit=True) as db:
        db.execute("CREATE TABLE orders (id int PRIMARY KEY, total int)")
        db.execute("INSERT INTO orders SELECT n, n * 50 FROM generate_series(1, 6) n")
    return address


@contextmanager
def served(folder: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    command = [PROGRAM, "serve", "--port", str(port), "--http-port", "0", "--workers", "1"]
    with (folder / "serve.out").open("w") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT, text=True)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(60)
            finally:
                process.kill()


class Writer(Thread):
    """Changes the table without a pause until it is told to end; the last change says so."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._db = psycopg.connect(address, autocommit=True, options="-c synchronous_commit=on")
        self._chance, self.over = Random(5), Flag()

    def run(self) -> None:
        while not self.over.wait(0.02):
            id, total = self._chance.randrange(1, 30), self._chance.randrange(200)
            if self._chance.random() < 0.2:
                self._db.execute("DELETE FROM orders WHERE id = %s", (id,))
            else:
                self._db.execute(
                    "INSERT INTO orders VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET total = excluded.total",
                    (id, total),
                )

    def end(self) -> dict[int, int]:
        """What the table holds in the end."""
        self.over.set()
        self.join()
        self._db.execute("INSERT INTO orders VALUES (%s, 101)", (LAST,))
        found = self._db.execute("SELECT id, total FROM orders WHERE total > 100").fetchall()
        self._db.close()
        return dict(found)  # `o.id` is the column of that name, a number, and not the key


class Picture:
    """What a client knows, made of what it was told and nothing else."""

    def __init__(self) -> None:
        self.rows: dict[Any, int] = {}
        self.told = 0

    def take(self, event: Any) -> None:
        self.told += 1
        if event.type == "initial":
            assert self.told == 1, "it had to begin anew"
            self.rows = {row["o.id"]: row["o.total"] for row in event.matches}
            return
        key, total = event.match["o.id"], event.match["o.total"]
        if event.type == "added":
            assert key not in self.rows, "a repeat reached the client"
            self.rows[key] = total
        elif event.type == "changed":
            assert self.rows[key] == event.prev["o.total"], "a change was lost"
            self.rows[key] = total
        else:
            assert event.type == "removed"
            assert self.rows.pop(key) == total


def pipeline_pid(folder: Path) -> int | None:
    try:
        status = json.loads((folder / "data" / "pipeline.json").read_text())
    except (OSError, ValueError):
        return None
    return int(status["pid"]) if status["state"] == "running" else None


@pytest.mark.timeout(600)  # Spark starts twice
def test_nothing_is_lost_and_nothing_told_twice_while_parts_are_killed(shop: str, tmp_path: Path):
    slot = "end_to_end"
    options = ["--name", "shop", "--option", "tables=orders", "--option", f"slot={slot}"]
    subprocess.run(
        [PROGRAM, "source", "add", "postgres", shop, *options], cwd=tmp_path, check=True, timeout=60
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    picture, clock, pause = Picture(), SystemClock(), Flag()
    with served(tmp_path, port) as supervisor, connected(port, clock, pause) as client:
        watch = client.watch(WATCH)
        writer = Writer(shop)

        def follow(count: int) -> None:
            target = picture.told + count
            while picture.told < target:
                event = watch.next(timeout=240)
                assert event is not None, (tmp_path / "serve.out").read_text()
                picture.take(event)

        follow(1)  # what there is, which may be nothing yet: the first scan is the pipeline's
        writer.start()
        follow(30)
        killed = pipeline_pid(tmp_path)
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        supervisor.send_signal(signal.SIGHUP)  # the gateway's worker is renewed, too
        until = clock.monotonic() + 240
        while pipeline_pid(tmp_path) in (None, killed):
            assert clock.monotonic() < until, (tmp_path / "serve.out").read_text()
            pause.wait(0.2)
        expected = writer.end()
        while (
            picture.rows != expected
        ):  # partitions may overtake each other, so the last change is not told last
            follow(1)
    subprocess.run([PROGRAM, "source", "remove", "shop"], cwd=tmp_path, check=True, timeout=60)


@contextmanager
def connected(port: int, clock: SystemClock, pause: Flag) -> Iterator[vedette.BlockingSession]:
    """A client, as soon as somebody listens."""
    end = clock.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            assert clock.monotonic() < end, "nobody listens"
            pause.wait(0.1)
    with connect_sync(f"ws://127.0.0.1:{port}") as client:
        yield client

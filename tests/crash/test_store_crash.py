"""SIGKILL at random moments: every acknowledged commit is present exactly once and complete."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.faulty_disk import fresh_database
from tests.support.paths import ROOT
from vedette.storage.catalog import open_catalog
from vedette.storage.seam import JournalRow, Store


@pytest.fixture(params=["sqlite", "postgres"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "data")
        return
    with fresh_database(request.getfixturevalue("postgres_url")) as url:
        yield url


def write_and_kill(location: str, seed: int, patience_seconds: float) -> tuple[int, set[int]]:
    """Return the boot count of the writer and the ticks that it acknowledged before it was killed."""
    command = [sys.executable, "-m", "tests.crash.processes.store_writer", location, str(seed)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        word, boot = writer.stdout.readline().split()
        assert word == "boot"
        time.sleep(patience_seconds)
        writer.kill()
        lines = writer.stdout.read().splitlines()
    return int(boot), {int(line.removeprefix("ack ")) for line in lines}


def journal(store: Store) -> Iterator[JournalRow]:
    offset = 0
    while rows := store.read(offset, 5_000):
        yield from rows
        offset = rows[-1].offset


def check(store: Store, tick: int) -> None:
    """Check that transactions are whole and unique, ticks have no gap, and elements equal the sum of the journal."""
    rows = list(journal(store))
    sizes = Counter(row.transaction for row in rows)
    assert all(sizes[row.transaction] == int(row.cause or 0) for row in rows)
    assert sorted({row.tick for row in rows}) == list(range(1, tick + 1))
    assert len({(row.tick, row.transaction) for row in rows}) == tick
    sum_of_journal: dict[str, bytes] = {}
    for row in rows:
        if row.after is None:
            del sum_of_journal[row.key]
        else:
            sum_of_journal[row.key] = row.after
    assert {record.id: record.attributes for record in store.elements()} == sum_of_journal


@pytest.mark.parametrize("rounds", [10, pytest.param(200, marks=pytest.mark.soak)])
def test_acknowledged_commits_survive_sigkill(location: str, rounds: int) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    boots: list[int] = []
    acknowledged: set[int] = set()
    for _ in range(rounds):
        boot, acks = write_and_kill(location, rng.randrange(2**32), rng.uniform(0, 0.25))
        assert acknowledged.isdisjoint(acks), "a tick was given twice"
        acknowledged |= acks
        catalog = open_catalog(location)
        store = catalog.open("default")
        facts = store.open_for_writing()
        boots += [boot, facts.boot_count]
        assert facts.sequence >= max(acknowledged, default=0), "an acknowledged commit is gone"
        check(store, facts.sequence)
        catalog.close()
    assert boots == list(range(1, 2 * rounds + 1)), "a boot was counted twice or not at all"
    assert len(acknowledged) > rounds, "hardly anything was written, so hardly anything was shown"

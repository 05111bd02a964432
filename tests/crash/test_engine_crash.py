"""SIGKILL at random moments: every acknowledged transaction is present exactly once and complete."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import vedette
from tests.support.faulty_disk import fresh_database
from tests.support.paths import ROOT
from vedette.engine.data_directory import Vedette
from vedette.storage.seam import JournalRow, Store

TIMEOUT_SECONDS = 60.0
SPAWNED = Counter({"Order": 1, "Item": 2, "holds": 2})
GONE = -1


@pytest.fixture(params=["sqlite", "postgres"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "data")
        return
    with fresh_database(request.getfixturevalue("postgres_url")) as url:
        yield url


def start_writer(location: str, seed: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.crash.processes.engine_writer", location, str(seed)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


def write_and_kill(location: str, rng: random.Random, *, early: bool) -> list[dict[str, Any]]:
    """Return the output of a writer that was killed while opening (`early`) or while writing."""
    with start_writer(location, rng.randrange(2**32)) as writer:
        assert writer.stdout is not None
        first = [] if early else [writer.stdout.readline()]
        time.sleep(rng.uniform(0, 0.6) if early else rng.uniform(0, 0.4))
        writer.kill()
        lines = [json.loads(line) for line in first + writer.stdout.readlines()]
        assert writer.wait(TIMEOUT_SECONDS) == -signal.SIGKILL, "it did not live to be killed"
    assert early or lines[0]["step"] == "ready"
    return lines


@dataclass
class Ledger:
    """The acknowledgements of all rounds, and the state that the journal adds up to."""

    certain: dict[str, int] = field(default_factory=dict)
    """Family ▸ its version, or GONE, as last acknowledged or found."""
    pending: dict[str, int] = field(default_factory=dict)
    """Family ▸ versions that a step without an answer may have written."""
    reported_ids: set[str] = field(default_factory=set)
    reported_ticks: dict[int, list[str]] = field(default_factory=dict)
    """Tick ▸ ids that the transaction reported as written."""
    journal_ids: set[str] = field(default_factory=set)
    ticks: dict[int, set[str]] = field(default_factory=dict)
    """Tick ▸ elements that changed according to the journal."""
    images: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Every element as computed from the journal."""
    offset: int = 0
    sequence: int = 0

    def hear(self, lines: list[dict[str, Any]]) -> None:
        for line in lines:
            if line["step"] == "ready" or line["kind"] == "regret":
                continue
            tag = line["tag"]
            version = {"spawn": 0, "kill": GONE}.get(line["kind"], line.get("version"))
            assert isinstance(version, int)
            if line["step"] == "try":
                self.pending[tag] = version
                continue
            del self.pending[tag]
            self.certain[tag] = version
            assert line["tick"] not in self.reported_ticks, "two commits were given one tick"
            self.reported_ticks[line["tick"]] = line["ids"]
            if line["kind"] == "spawn":
                assert self.reported_ids.isdisjoint(line["ids"]), "an id was given twice"
                assert self.journal_ids.isdisjoint(line["ids"]), "an id that survived a crash was given again"
                self.reported_ids.update(line["ids"])

    # The journal

    def read(self, store: Store) -> None:
        """Read the journal from the end of the last round, transaction by transaction."""
        rows: list[JournalRow] = []
        while more := store.read(self.offset, 5_000):
            rows += more
            self.offset = more[-1].offset
        transactions: dict[str, list[JournalRow]] = {}
        for row in rows:
            transactions.setdefault(row.transaction, []).append(row)
        for transaction in transactions.values():
            self._follow(transaction)

    def _follow(self, rows: list[JournalRow]) -> None:
        (tick,), (sequence,) = {row.tick for row in rows}, {row.seq for row in rows}
        assert tick > max(self.ticks, default=-1), "ticks rise, and none comes twice"
        assert sequence > self.sequence
        self.sequence = sequence
        self.ticks[tick] = {row.key for row in rows}
        assert len(self.ticks[tick]) == len(rows) == 5, "a transaction by half"
        assert Counter(row.collection for row in rows) == SPAWNED
        kinds = {(row.before is None, row.after is None) for row in rows}
        assert len(kinds) == 1, "spawned, changed or killed as a whole"
        for row in rows:
            self._fold(row)

    def _fold(self, row: JournalRow) -> None:
        before = None if row.before is None else json.loads(row.before)
        assert self.images.pop(row.key, None) == before
        if before is None:
            assert row.key not in self.journal_ids, "an id came twice"
            self.journal_ids.add(row.key)
        if row.after is not None:
            self.images[row.key] = json.loads(row.after)

    # The state

    def check(self, db: Vedette) -> None:
        database = db.default
        self.read(database._store)
        records = {record.id: record for record in database._store.elements()}
        assert self.images == {
            id: {
                "id": id,
                "_type": record.type,
                **({"_targets": list(record.targets)} if record.targets is not None else {}),
                **json.loads(record.attributes),
            }
            for id, record in records.items()
        }, "the elements are not what the journal adds up to"
        assert set(database.state.graph.elements) == set(records)
        database.state.graph.validate()
        for tick, ids in self.reported_ticks.items():
            assert self.ticks[tick].issuperset(ids), "an acknowledged commit is not in the journal"
        assert database.state.tick > max(self.ticks, default=-1)
        self._check_families(db)

    def _check_families(self, db: Vedette) -> None:
        with db.session() as session:
            orders = dict(session.execute("MATCH o: Order RETURN o.tag, o.version").rows)
            held = session.execute(
                "MATCH o: Order, i: Item, holds(o, i) AS h RETURN o.tag, o.version, i.tag, i.version, h.version"
            ).rows
            items = session.execute("MATCH i: Item RETURN i.tag").rows
        assert len(items) == len(held) == 2 * len(orders), "half a family"
        assert all(a == b and x == y == z for a, x, b, y, z in held), "half a change"
        assert Counter(row[0] for row in held) == dict.fromkeys(orders, 2)
        for tag in self.certain.keys() | self.pending.keys() | orders.keys():
            found = orders.get(tag, GONE)
            may_be = {self.certain.get(tag, GONE), self.pending.get(tag, self.certain.get(tag, GONE))}
            assert found in may_be, f"{tag} is {found}, but was acknowledged as {may_be}"
            self.certain[tag] = found
        self.pending.clear()


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("rounds", [10, pytest.param(200, marks=pytest.mark.soak)])
def test_acknowledged_transactions_survive_sigkill(location: str, rounds: int) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    ledger = Ledger()
    for number in range(rounds):
        ledger.hear(write_and_kill(location, rng, early=number % 4 == 1))
        with vedette.open(location) as db:
            ledger.check(db)
    assert len(ledger.reported_ticks) > 10 * rounds, "too few acknowledgements for a meaningful check"
    print(f"{len(ledger.reported_ticks)} commits were acknowledged, {len(ledger.ticks)} found")

"""SIGKILL at random moments: the ledger of side effects and the graph agree.

An acknowledged job is deleted and never delivered again. Every other job is delivered again with its counted attempts.
A job acknowledged in one transaction with an effect in the graph has that effect exactly once.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import vedette
from tests.crash.processes.queue_worker import (
    MAX_REDELIVERIES,
    WATCH,
    account_of,
    always_fails,
    in_transaction,
    number_of,
)
from tests.support.paths import ROOT

TIMEOUT_SECONDS = 300.0


@dataclass
class Ledger:
    """The ledger entries of all rounds."""

    made: set[int] = field(default_factory=set)
    done: set[int] = field(default_factory=set)
    acked: set[int] = field(default_factory=set)
    begun: set[int] = field(default_factory=set)
    failed: Counter[int] = field(default_factory=Counter)
    """Job ▸ number of certain failures."""
    open: Counter[int] = field(default_factory=Counter)
    """Job ▸ attempts with an unknown outcome, or that ended without counting."""
    held: dict[int, int] = field(default_factory=dict)
    """Account ▸ the job that a worker of the current process holds."""
    lines: int = 0

    def read(self, path: Path) -> None:
        lines = path.read_text().split("\n")
        assert lines.pop() == "", "a line by half"
        for line in lines[self.lines :]:
            word, *numbers = line.split()
            getattr(self, f"_{word}")(*map(int, numbers))
        self.lines = len(lines)

    def _started(self) -> None:
        self.held.clear()

    def _made(self, n: int) -> None:
        self.made.add(n)

    def _begun(self, n: int, attempt: int) -> None:
        assert n not in self.acked, f"{n} was delivered after its ACK had returned"
        assert account_of(n) not in self.held, f"{n} was delivered while {self.held} were in progress"
        low = 1 + self.failed[n]
        assert low <= attempt <= low + self.open[n], f"{n} came as attempt {attempt}"
        assert attempt <= 1 + MAX_REDELIVERIES
        self.held[account_of(n)] = n
        self.begun.add(n)
        self.open[n] += 1

    def _ending(self, n: int) -> None:
        del self.held[account_of(n)]

    def _done(self, n: int) -> None:
        self.done.add(n)

    def _acked(self, n: int) -> None:
        self.acked.add(n)
        self.open[n] -= 1

    def _failed(self, n: int) -> None:
        self.failed[n] += 1
        self.open[n] -= 1

    @property
    def next_number(self) -> int:
        return 1 + max(self.made | self.begun, default=-1)

    def check(self, db: vedette.Vedette) -> int:
        """Compare with the graph, and return the first unused number."""
        with db.session() as session:
            there = {row[0] for row in session.execute("MATCH j: Job RETURN j.n").rows}
            effects = {row[0] for row in session.execute("MATCH e: Effect RETURN e.n").rows}
            rows = session.execute("MATCH d: _DeadLetter RETURN d.original_match, d.delivery_attempts").rows
        buried = [int(match.split(":")[1].strip(" }")) for match, _ in rows]
        assert len(set(buried)) == len(buried), "a dead letter twice"
        assert {attempts for _, attempts in rows} <= {1 + MAX_REDELIVERIES}
        dead = set(buried)
        assert not there & dead
        assert not self.acked & there, "acknowledged, and there"
        assert not self.acked & dead
        assert self.made <= there | effects | self.done | dead, "lost"
        assert {n for n in self.acked if in_transaction(n)} <= effects
        assert not effects & (there | dead), "an effect of a job that is not done"
        assert all(in_transaction(n) for n in effects)
        for n in dead:
            assert self.failed[n] <= 1 + MAX_REDELIVERIES <= self.failed[n] + self.open[n]
        gone = self.made - there - dead
        assert not any(map(always_fails, gone))
        assert {n for n in gone if not in_transaction(n)} <= self.done, "gone without having been done"
        attempts = db.default.watching.consuming.dispatcher.attempts
        kept = {element: sum(each.total for each in groups.values()) for element, groups in attempts.items()}
        with db.session() as session:
            numbers = dict(session.execute("MATCH j: Job RETURN j.id, j.n").rows)
        for id, n in numbers.items():
            assert self.failed[n] <= kept.get(id, 0) <= self.failed[n] + self.open[n], f"attempts of {n}"
        return max(self.next_number, 1 + max(there | effects | dead, default=-1))


def start_worker(
    location: Path, ledger: Path, numbers: tuple[int, int], seed: int
) -> subprocess.Popen[bytes]:
    arguments = [str(location), str(ledger), *map(str, numbers), str(seed)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-m", "tests.crash.processes.queue_worker", *arguments]
    return subprocess.Popen(command, cwd=ROOT, env=environment)


def work_and_kill(
    location: Path, path: Path, numbers: tuple[int, int], growth: int, rng: random.Random
) -> None:
    """Run until the ledger has grown by this number of bytes, and a moment longer. With 0, kill while opening."""
    size = path.stat().st_size
    end = time.monotonic() + TIMEOUT_SECONDS
    with start_worker(location, path, numbers, rng.randrange(2**32)) as worker:
        while path.stat().st_size < size + growth:
            assert worker.poll() is None, "it did not live to be killed"
            assert time.monotonic() < end, "nothing happens any more"
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.05 if growth else 0.6))
        worker.kill()


def drain(db: vedette.Vedette, ledger: Ledger) -> None:
    """All remaining jobs are delivered, each once, with the attempts counted so far."""
    with db.session() as session:
        left = {row[0] for row in session.execute("MATCH j: Job RETURN j.n").rows}
        handle, seen = session.watch(WATCH), []
        while events := handle.poll():
            for event in [event for event in events if event.type == "consumed"]:
                n = number_of(event)
                low = 1 + ledger.failed[n]
                assert low <= event.attributes["attempt"] <= low + ledger.open[n]
                assert n not in ledger.acked
                seen.append(n)
            handle.ack(*events)
        assert len(seen) == len(set(seen))
        assert set(seen) == left


@pytest.mark.timeout(7_200)
@pytest.mark.parametrize(("kills", "jobs"), [(10, 5_000), pytest.param(200, 100_000, marks=pytest.mark.soak)])
def test_queue_and_side_effects_agree_after_sigkill(tmp_path: Path, kills: int, jobs: int) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    location, path = tmp_path / "data", tmp_path / "ledger"
    path.touch()
    ledger, first = Ledger(), 0
    for number in range(kills):
        last = jobs * (number + 1) // kills
        early = number % 4 == 1 and number + 1 < kills
        growth = 0 if early else max(1_000, int((last - first) * rng.uniform(15, 55)))
        work_and_kill(location, path, (first, last), growth, rng)
        ledger.read(path)
        with vedette.open(location) as db:
            first = ledger.check(db)
    with vedette.open(location) as db:
        print(f"{len(ledger.acked)} acknowledged, {sum(ledger.failed.values())} failures, {first} made")
        assert len(ledger.acked) > jobs // 4, "hardly anything was acknowledged, so hardly anything was shown"
        drain(db, ledger)

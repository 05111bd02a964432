"""SIGKILL at random moments: a reliable watch has no gap, a trigger runs once, a reactor is called."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import vedette
from tests.support.paths import ROOT

TIMEOUT_SECONDS = 300.0


class Ledger:
    """The ledger entries of all rounds."""

    def __init__(self) -> None:
        self.made: set[int] = set()
        self.known: set[int] = set()
        """The rows that the reader of the watch has folded from its events."""
        self.called: Counter[int] = Counter()
        self.drained = False
        self.repeated = 0
        self._position = 0
        self._content: dict[int, list[str]] = {}
        """Position ▸ the event with that position."""
        self._lines = 0

    def read(self, path: Path) -> None:
        lines = path.read_text().split("\n")
        assert lines.pop() == "", "an incomplete line"
        for line in lines[self._lines :]:
            word, *rest = line.split()
            getattr(self, f"_{word}")(*rest)
        self._lines = len(lines)

    def _started(self) -> None:
        pass

    def _drained(self) -> None:
        self.drained = True

    def _made(self, n: str) -> None:
        self.made.add(int(n))

    def _called(self, n: str) -> None:
        self.called[int(n)] += 1

    def _snapshot(self, position: str, *numbers: str) -> None:
        self._position = int(position)
        self._content = {}
        self.known = set(map(int, numbers))

    def _event(self, position: str, type: str, n: str) -> None:
        place, content = int(position), [type, n]
        if place <= self._position:
            self.repeated += 1
            assert self._content.get(place, content) == content, f"{position} had other content before"
            return
        assert place == self._position + 1, f"a gap: {position} after {self._position}"
        self._position, self._content[place] = place, content
        if type == "added":
            assert int(n) not in self.known
            self.known.add(int(n))
        else:
            assert type == "removed"
            self.known.remove(int(n))

    def check(self, db: vedette.Vedette) -> None:
        """Compare with the graph after all events were delivered."""
        with db.session() as session:
            tasks = dict(session.execute("MATCH t: Task RETURN t.n, t.done").rows)
            calls = Counter(row[0] for row in session.execute("MATCH i: Invocation RETURN i.status").rows)
            echoes = Counter(row[0] for row in session.execute("MATCH e: Echo RETURN e.n").rows)
        assert self.made <= set(tasks), "lost"
        assert echoes == Counter(tasks.keys()), "the trigger fired once for each"
        assert self.known == {n for n, done in tasks.items() if not done}
        assert set(self.called) == set(tasks), "never called for"
        assert calls["running"] == 0
        assert calls["succeeded"] >= len(tasks)


def start(location: Path, ledger: Path, last: int) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [
        sys.executable,
        "-m",
        "tests.crash.processes.watch_process",
        str(location),
        str(ledger),
        str(last),
    ]
    return subprocess.Popen(command, cwd=ROOT, env=environment)


def work_and_kill(location: Path, path: Path, last: int, rng: random.Random) -> None:
    """Run until the ledger has grown by this number of bytes, and a moment longer."""
    goal = path.stat().st_size + rng.choice((0, 400, 2_000, 5_000))
    end = time.monotonic() + TIMEOUT_SECONDS
    with start(location, path, last) as process:
        while path.stat().st_size < goal and process.poll() is None:
            assert time.monotonic() < end, "nothing happens any more"
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.05))
        process.kill()


@pytest.mark.timeout(7_200)
@pytest.mark.parametrize(("kills", "tasks"), [(5, 250), pytest.param(200, 20_000, marks=pytest.mark.soak)])
def test_reliable_watch_trigger_and_reactor_survive_sigkill(tmp_path: Path, kills: int, tasks: int) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    location, path, ledger = tmp_path / "data", tmp_path / "ledger", Ledger()
    path.touch()
    for number in range(kills):
        work_and_kill(location, path, tasks * (number + 1) // kills, rng)
        ledger.read(path)
    ledger.drained = False
    assert start(location, path, tasks).wait(TIMEOUT_SECONDS) == 0
    ledger.read(path)
    assert ledger.drained
    with vedette.open(location, environment={}) as db:
        ledger.check(db)
    print(f"{len(ledger.made)} made, {ledger.repeated} repeated events, {sum(ledger.called.values())} calls")

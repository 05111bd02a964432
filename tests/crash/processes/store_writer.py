"""A process that writes to a store until it is killed, and prints what was acknowledged.

    python -m tests.crash.processes.store_writer LOCATION SEED

Prints `boot N`, then `ack TICK` for each commit whose wait returned, from several threads, each line in one write.
Every commit is a transaction of several elements, and each journal row has the number of rows of its transaction. The
test can therefore recognize a partial transaction, and compares the elements with the sum of the journal.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock, Thread

from vedette.storage.catalog import open_catalog
from vedette.storage.group_commit import GroupCommitLogWriter
from vedette.storage.seam import Batch, ElementRecord, JournalRow

__all__ = ["main"]

THREADS = 4


@dataclass(frozen=True, slots=True)
class Commit:
    tick: int
    boot: int
    puts: tuple[str, ...]
    deletes: tuple[str, ...]


def image(commit: Commit) -> bytes:
    return json.dumps({"tick": commit.tick, "pad": "x" * (commit.tick % 700)}).encode()


def encode(commits: Sequence[Commit]) -> Batch:
    """Return the net effect in the form of the engine's encoder."""
    puts: dict[str, ElementRecord] = {}
    deletes: dict[str, None] = {}
    journal = []
    for commit in commits:
        size, after = len(commit.puts) + len(commit.deletes), image(commit)
        for id in commit.puts:
            puts[id] = ElementRecord(id, "Task", after)
            deletes.pop(id, None)
        for id in commit.deletes:
            puts.pop(id, None)
            deletes[id] = None
        for id, value in [*((id, after) for id in commit.puts), *((id, None) for id in commit.deletes)]:
            name = f"{commit.boot}.{commit.tick}"
            journal.append(JournalRow(commit.tick, name, "Task", id, None, value, 0, cause=str(size)))
    return Batch(sequence=commits[-1].tick, puts=list(puts.values()), deletes=list(deletes), journal=journal)


class Writer:
    def __init__(self, location: str, seed: int) -> None:
        self.store = open_catalog(location).open("default")
        facts = self.store.open_for_writing()
        self.boot, self.tick = facts.boot_count, facts.sequence
        self.alive = [record.id for record in self.store.elements()]
        self.rng = random.Random(seed)
        self.lock = Lock()
        self.gate = GroupCommitLogWriter(self.store, encode=encode, sequence=facts.sequence)

    def submit(self) -> int:
        with self.lock:
            self.tick += 1
            new = [f"{self.boot}-{self.tick}-{number}" for number in range(self.rng.randint(1, 8))]
            old = self.rng.sample(self.alive, min(len(self.alive), self.rng.randint(0, 6)))
            changed, gone = old[::2], old[1::2]
            self.gate.append(self.tick, Commit(self.tick, self.boot, (*new, *changed), tuple(gone)))
            self.alive = [id for id in self.alive if id not in gone] + new
            return self.tick

    def run(self) -> None:
        while True:
            tick = self.submit()
            self.gate.wait_durable(tick)
            os.write(1, f"ack {tick}\n".encode())


def main(location: str, seed: str) -> None:
    writer = Writer(location, int(seed))
    os.write(1, f"boot {writer.boot}\n".encode())
    for _ in range(THREADS):
        Thread(target=writer.run).start()


if __name__ == "__main__":
    main(*sys.argv[1:])

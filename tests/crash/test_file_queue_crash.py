"""SIGKILL of the queue's owner at random times: no task is lost, and no acknowledged task is delivered again."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import vedette
from vedette.handshake.tables.handshake_db import FILE_NAME
from vedette.search.file_queue.engine_queue import QUEUE_DATABASE, EngineFileQueue
from vedette.search.file_queue.tasks import TaskStatus

RUNNER = Path(__file__).parent / "processes" / "file_queue_runner.py"
ROUND = 10_000


class Ledger:
    """Which states of the tasks are possible after the lines that the process wrote before it was killed."""

    def __init__(self) -> None:
        self.wanted: dict[int, set[str]] = {}
        """By task: the operations that it may have; an empty text if it may be missing."""

    def read(self, lines: list[str]) -> None:
        taken: dict[int, str] = {}
        again: set[int] = set()
        for line in lines:
            word, *rest = line.split()
            number = int(rest[0]) if rest else 0
            if word == "put":
                self.wanted[number] = {"ingest"}
            elif word == "took":
                assert rest[1] in self.wanted[number], f"{line}: expected {self.wanted[number]}"
                taken[number] = rest[1]
                again.discard(number)
            elif word == "deleted":
                self.wanted[number] = {"delete"}
                again.add(number)
            elif word == "acked":
                self.wanted[number] = {"delete"} if number in again else {""}
                taken.pop(number)
            elif word == "back":
                taken.pop(number)
        for number, operation in taken.items():  # operations whose result the process did not report
            if number not in again:
                self.wanted[number] |= {operation, "", "delete"}


@pytest.mark.parametrize("seed", [1, 2])
def test_tasks_survive_repeated_kills(tmp_path: Path, seed: int) -> None:
    rng, ledger = random.Random(seed), Ledger()
    for turn in range(4):
        first = turn * ROUND
        command = [sys.executable, str(RUNNER), str(tmp_path), str(first)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(rng.randrange(2, 60))]
            process.kill()
            text = "".join(lines) + process.stdout.read()
        whole = text[: text.rindex("\n") + 1].splitlines()
        assert whole[0] == "started"
        ledger.read(whole[1:])
        last = max((int(line.split()[1]) for line in whole if line.startswith("put")), default=first - 1)
        # The next put may have returned without being reported.
        ledger.wanted[last + 1] = {"ingest", ""}
        check(tmp_path, ledger)


def check(data: Path, ledger: Ledger) -> None:
    with (
        vedette.open(data) as home,
        EngineFileQueue(home.database(QUEUE_DATABASE), data / FILE_NAME) as queue,
    ):
        rows = queue.list_tasks(limit=1_000_000)
        found = {int(row.task.path[1:]): str(row.task.operation) for row in rows}
        assert len(found) == len(rows) == queue.depth()
        assert {row.status for row in rows} <= {TaskStatus.PENDING}, "claims end with their process"
        for number in found.keys() | ledger.wanted.keys():
            assert found.get(number, "") in ledger.wanted.get(number, {""}), number
        ledger.wanted = {number: {operation} for number, operation in found.items()}
        with sqlite3.connect(data / FILE_NAME) as plain:
            shown = plain.execute("SELECT path, operation FROM ingestion_queue").fetchall()
        assert dict(shown) == {f"/{number}": operation for number, operation in found.items()}

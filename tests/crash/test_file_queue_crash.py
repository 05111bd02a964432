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
TASKS_PER_ROUND = 10_000
"""Task numbers of one round start at a multiple of this."""


class ExpectedTasks:
    """Which states of the tasks are possible after the lines that the process wrote before it was killed."""

    def __init__(self) -> None:
        self.possible_operations: dict[int, set[str]] = {}
        """By task: the operations that it may have; an empty text if it may be missing."""

    def read(self, lines: list[str]) -> None:
        claimed: dict[int, str] = {}
        changed_while_claimed: set[int] = set()
        for line in lines:
            word, *rest = line.split()
            number = int(rest[0]) if rest else 0
            if word == "put":
                self.possible_operations[number] = {"ingest"}
            elif word == "claimed":
                assert rest[1] in self.possible_operations[number], (
                    f"{line}: expected {self.possible_operations[number]}"
                )
                claimed[number] = rest[1]
                changed_while_claimed.discard(number)
            elif word == "deleted":
                self.possible_operations[number] = {"delete"}
                changed_while_claimed.add(number)
            elif word == "acked":
                self.possible_operations[number] = {"delete"} if number in changed_while_claimed else {""}
                claimed.pop(number)
            elif word == "nacked":
                claimed.pop(number)
        for number, operation in claimed.items():  # operations whose result the process did not report
            if number not in changed_while_claimed:
                self.possible_operations[number] |= {operation, "", "delete"}


@pytest.mark.parametrize("seed", [1, 2])
def test_tasks_survive_repeated_kills(tmp_path: Path, seed: int) -> None:
    rng, expected = random.Random(seed), ExpectedTasks()
    for round_number in range(4):
        first = round_number * TASKS_PER_ROUND
        command = [sys.executable, str(RUNNER), str(tmp_path), str(first)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(rng.randrange(2, 60))]
            process.kill()
            text = "".join(lines) + process.stdout.read()
        complete_lines = text[: text.rindex("\n") + 1].splitlines()
        assert complete_lines[0] == "started"
        expected.read(complete_lines[1:])
        last = max(
            (int(line.split()[1]) for line in complete_lines if line.startswith("put")), default=first - 1
        )
        # The next put may have returned without being reported.
        expected.possible_operations[last + 1] = {"ingest", ""}
        check(tmp_path, expected)


def check(data: Path, expected: ExpectedTasks) -> None:
    with (
        vedette.open(data) as queue_vedette,
        EngineFileQueue(queue_vedette.database(QUEUE_DATABASE), data / FILE_NAME) as queue,
    ):
        rows = queue.list_tasks(limit=1_000_000)
        stored = {int(row.task.path[1:]): str(row.task.operation) for row in rows}
        assert len(stored) == len(rows) == queue.depth()
        assert {row.status for row in rows} <= {TaskStatus.PENDING}, "claims end with their process"
        for number in stored.keys() | expected.possible_operations.keys():
            assert stored.get(number, "") in expected.possible_operations.get(number, {""}), number
        expected.possible_operations = {number: {operation} for number, operation in stored.items()}
        with sqlite3.connect(data / FILE_NAME) as db:
            rows_of_view = db.execute("SELECT path, operation FROM ingestion_queue").fetchall()
        assert dict(rows_of_view) == {f"/{number}": operation for number, operation in stored.items()}

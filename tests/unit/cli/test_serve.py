"""serve: what the demo does, and how a server ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import vedette
from vedette.cli import demo

PROGRAM = Path(sys.executable).with_name("vedette")


@contextmanager
def served(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [PROGRAM, "serve", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    watchdog = threading.Timer(60, process.kill)
    watchdog.start()
    try:
        yield process
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate()


def read_until(process: subprocess.Popen[str], words: str) -> str:
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if words in line:
            return seen
    raise AssertionError(f"{words!r} was never said:\n{seen}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_demo_lives_until_it_is_told_to_stop(number: signal.Signals, folder: Path) -> None:
    with served("--demo", "--pace", "0.05") as process:
        seen = read_until(process, "todo ▸ doing, Ada takes it")
        process.send_signal(number)
        seen += process.communicate(timeout=30)[0]
    assert process.returncode == 0
    assert "Network access arrives with the gateway" in seen
    assert "vedette shell data --database demo" in seen
    assert "| Draw the floor plan | todo" in seen, "the board is shown"
    assert seen.splitlines()[-1] == "Stopped; data is closed in good order."
    with vedette.open("data") as db, db.database("demo").session() as session:
        ((people,),) = session.execute("MATCH p: Person RETURN COUNT(*)").rows
        assert people == 3


def test_without_the_demo_it_waits(folder: Path) -> None:
    with served("--data", "elsewhere") as process:
        read_until(process, "Waiting.")
        process.terminate()
        assert process.communicate(timeout=30)[0] == "Stopped; elsewhere is closed in good order.\n"
    assert process.returncode == 0


def test_a_second_engine_is_refused_while_it_runs(folder: Path) -> None:
    with served() as process:
        read_until(process, "Waiting.")
        second = subprocess.run([PROGRAM, "serve"], capture_output=True, text=True, check=False, timeout=30)
    assert second.returncode == 1
    assert f"pid {process.pid}" in second.stderr
    assert "One process at a time works on a data directory." in second.stderr


def test_the_board_is_filled_once() -> None:
    with vedette.open(":memory:") as db:
        assert demo.prepare(db.database("demo"))
        assert not demo.prepare(db.database("demo"))
        with db.database("demo").session() as session:
            assert len(session.execute(demo.EXAMPLE).rows) == len(demo.TASKS)
            assert len(session.execute(demo.OVERVIEW).rows) == len(demo.PEOPLE)


def test_the_work_never_ends_and_never_grows() -> None:
    with vedette.open(":memory:") as db:
        demo.prepare(db.database("demo"))
        with db.database("demo").session() as session:
            said = [demo.advance(session) for _ in range(200)]
            ((tasks,),) = session.execute("MATCH t: Task RETURN COUNT(*)").rows
            ((late,),) = session.execute(
                'MATCH t: Task WHERE t.status = "done" AND t.finished_at IS NULL RETURN COUNT(*)'
            ).rows
    assert tasks <= demo.MOST_DONE + demo.FEWEST_OPEN + len(demo.TASKS)
    assert late == 0, "the rule notes the end"
    for words in ("todo ▸ doing", "doing ▸ review", "review ▸ done", "is new", "cleared away"):
        assert any(words in sentence for sentence in said[100:]), words
    begun = [sentence.split('"')[1] for sentence in said if "▸ doing" in sentence]
    assert begun.index("Lay the foundation") > begun.index("Draw the floor plan"), "what blocks comes first"

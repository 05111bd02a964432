"""SIGKILL of the folder daemon while files change: no task is lost, no chunk is orphaned or duplicated."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event

import pytest

from tests.crash.processes.folder_storm import content, rebuilt, storm
from vedette.errors import IngestError
from vedette.handshake.config import WatchFolderConfig
from vedette.handshake.tables import HandshakeTables
from vedette.search.file_queue.task_table import TaskTable
from vedette.search.folders.daemon_api import connect_daemon

SOAK = bool(os.environ.get("VEDETTE_SOAK"))
DAEMON = [sys.executable, "-m", "vedette.cli.wqm"]
SPARK_DAEMON = [sys.executable, str(Path(__file__).parent / "processes" / "spark_daemon.py")]
ENVIRONMENT = {**os.environ, "VEDETTE_EMBEDDER": "hashing", "VEDETTE_FILES_ON_SPARK": "never"}
SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 12))]


def start_daemon(command: list[str], data: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*command, "daemon", "--data", str(data)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**ENVIRONMENT, **environment},
    )


def wait_for_line(process: subprocess.Popen[str], words: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return
    raise AssertionError(f"the process ended without printing {words!r}")


def settle(root: Path, data: Path) -> None:
    """Stop writing damaged files, and let a daemon run until nothing is left to do."""
    for damaged in root.rglob("*.pdf"):
        damaged.unlink()
    with HandshakeTables(data / "handshake.db") as tables:
        tables.reset_errors("w")
        tables.enable_watch("w")
    with start_daemon(DAEMON, data) as process:
        wait_for_line(process, "Watching the folders")
        for _ in range(2):  # the second scan finds files that were written too recently for the first one
            subprocess.run(
                [*DAEMON, "watch", "sync", "--data", str(data)],
                check=True,
                stdout=subprocess.DEVNULL,
                env=ENVIRONMENT,
                timeout=120,
            )
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode == 0
    table = TaskTable(data / "handshake.db")
    pending = {record.task.path for record in table.all() if record.dead_at is None}
    table.close()
    assert pending == set()


@pytest.fixture
def directories(tmp_path: Path) -> tuple[Path, Path]:
    root, data = tmp_path / "root", tmp_path / "data"
    root.mkdir()
    with HandshakeTables(data / "handshake.db") as tables:
        config = WatchFolderConfig(
            watch_id="w",
            path=str(root),
            collection="docs",
            debounce_seconds=0.05,
            ignore_patterns=("*.tmp",),
        )
        tables.add_watch(config)
    return root, data


@pytest.mark.parametrize("seed", SEEDS)
def test_daemon_survives_repeated_kills(directories: tuple[Path, Path], seed: int, tmp_path: Path) -> None:
    (root, data), rng = directories, random.Random(seed)
    for _ in range(2):
        storm(root, rng, 60)
        with start_daemon(DAEMON, data) as process:
            wait_for_line(process, "Watching the folders")
            storm(root, rng, 60)
            Event().wait(rng.random() * 0.5)  # kill at a random time
            process.kill()
    settle(root, data)
    assert content(data / "vectors") == rebuilt(root, tmp_path / "clean")


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", SEEDS)
def test_kill_of_the_spark_driver(directories: tuple[Path, Path], seed: int, tmp_path: Path) -> None:
    (root, data), rng = directories, random.Random(seed)
    for number in range(400):  # more than the daemon processes in one batch without Spark
        (root / f"{number}.txt").write_text(f"text {number}\n" * rng.randrange(1, 200))
    for round_number in range(2 if SOAK else 1):
        storm(root, rng, 100)
        with start_daemon(SPARK_DAEMON, data, VEDETTE_FILES_ON_SPARK="auto") as process:
            wait_for_line(process, "batch")
            if round_number == 0:
                (java,) = [pid for pid in children_of(process.pid) if "java" in command_of(pid)]
                os.kill(java, signal.SIGKILL)  # kills Spark only: the daemon continues without it
                wait_for(data, lambda names: len(names) > 200)
            Event().wait(rng.random())  # at any time between the starts of two jobs
            assert process.poll() is None
            process.kill()
            process.communicate()
        for path in root.glob("[0-9]*.txt"):
            if rng.random() < 0.7:
                path.write_text(f"changed {rng.random()}\n" * rng.randrange(1, 200))
    settle(root, data)
    assert content(data / "vectors") == rebuilt(root, tmp_path / "clean")


def test_disk_that_is_full_for_a_while(directories: tuple[Path, Path], tmp_path: Path) -> None:
    """Writes fail for a while. The daemon recovers without help, and no file is missing."""
    root, data = directories
    (root / "before.md").write_text("# before\nwords\n")
    with start_daemon(DAEMON, data) as process:
        wait_for_line(process, "Watching the folders")
        wait_for(data, lambda names: "before.md" in names)
        limits = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1_000, limits[1]))
        for number in range(30):
            (root / f"{number}.md").write_text(f"# {number}\n" + "many words\n" * 500)
        Event().wait(3.0)  # it tries and fails
        assert process.poll() is None
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, limits)
        wait_for(data, lambda names: len(names) == 31)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode == 0
    with HandshakeTables(data / "handshake.db") as tables:
        assert tables.watch("w").health.total_errors == 0, "a full disk does not count against a watch"
    assert content(data / "vectors") == rebuilt(root, tmp_path / "clean")


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")


def wait_for(data: Path, condition: Callable[[set[str]], bool]) -> None:
    """Wait until the condition is true for the names of the files that a search finds.

    The time limit of the test ends the wait.
    """
    client = connect_daemon(data)
    while True:
        with suppress(IngestError):  # the daemon is restarting
            if condition({Path(hit.path).name for hit in client.search("docs", "words", 10_000)}):
                return
        Event().wait(0.1)

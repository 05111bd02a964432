"""serve: what the demo does, and how a server ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import vedette
from vedette.cli.vedette.serve import connect_host
from vedette.client.blocking import connect_sync
from vedette.errors import IngestError
from vedette.processes.demo import board as demo
from vedette.processes.server_file import read_server_file
from vedette.search.folders.daemon_api import connect_daemon
from vedette.sources.journal.seam import open_journal

PROGRAM = Path(sys.executable).with_name("vedette")
WATCHDOG_SECONDS = 200.0
"""Ends a server that a failed test left behind. Shorter than the time limit of a test, longer than any test needs."""


@contextmanager
def served(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [PROGRAM, "serve", "--port", "0", "--http-port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    watchdog = threading.Timer(WATCHDOG_SECONDS, process.kill)
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
def test_the_demo_changes_until_it_is_stopped(number: signal.Signals, folder: Path) -> None:
    with served("--demo", "--pace", "0.05", "--no-pipeline", "--log-level", "info") as process:
        seen = read_until(process, "todo ▸ doing, Ada takes it")
        process.send_signal(number)
        seen += process.communicate(timeout=60)[0]
    assert process.returncode == 0
    assert "  ws://127.0.0.1:" in seen
    assert "vedette shell data --database demo" in seen
    assert seen.count("Stopped. data was closed cleanly.") == 1
    with vedette.open("data") as db, db.database("demo").session() as session:
        ((people,),) = session.execute("MATCH p: Person RETURN COUNT(*)").rows
        assert people == 3


def test_demo_prints_its_screen_once(folder: Path) -> None:
    """Changes of the board are not printed: they would push the screen away."""
    with served("--demo", "--pace", "0.05", "--no-pipeline") as process:
        read_until(process, "wqm search")
        with connect_sync(url_of(folder / "data"), database="demo") as session:
            watch = session.watch("WATCH t: Task RETURN t.status")
            while (event := watch.next(timeout=60)) is not None and event.type == "initial":
                pass
        process.terminate()
        assert process.communicate(timeout=60)[0] == "Stopped. data was closed cleanly.\n"


def url_of(directory: Path) -> str:
    found = read_server_file(directory)
    assert found is not None
    return f"ws://{found.host}:{found.port}"


def test_demo_folder_is_searchable(folder: Path) -> None:
    """On a fresh machine: what is in the files, what is written later, and after the daemon was killed."""
    with served("--demo", "--pace", "60", "--no-pipeline") as process:
        said = read_until(process, "wqm search")
        assert "demo-files" in said
        assert search_until("what do we do when it rains", "cover the open walls") == "site-diary.md"
        wqm = str(PROGRAM.with_name("wqm"))
        command = [wqm, "search", "what do we do when it rains", "-c", "demo", "--format", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert json.loads(done.stdout)[0]["place"].endswith("site-diary.md:1-13")
        (folder / "data" / "demo-files" / "cat.md").write_text("# The cat\nIt sleeps in the wheelbarrow.\n")
        assert search_until("where does the cat sleep", "wheelbarrow") == "cat.md"
        (child,) = [pid for pid in children_of(process.pid) if "vedette.cli.wqm" in command_of(pid)]
        os.kill(child, signal.SIGKILL)
        read_until(process, "folder daemon exited (SIGKILL)")
        (folder / "data" / "demo-files" / "cat.md").write_text("# The cat\nIt has moved into the kitchen.\n")
        assert search_until("where does the cat sleep", "kitchen") == "cat.md"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_sync_and_search_while_the_daemon_starts(folder: Path) -> None:
    """The commands wait for the daemon. Opening the vectors themselves would lock them against it."""
    (folder / "notes").mkdir()
    (folder / "notes" / "cat.md").write_text("# The cat\nIt sleeps in the wheelbarrow.\n")
    wqm = str(PROGRAM.with_name("wqm"))

    def run(*arguments: str) -> str:
        done = subprocess.run([wqm, *arguments], capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    with served("--no-pipeline") as process:
        read_until(process, "vedette shell")
        run("watch", "add", "notes", "--collection", "notes")
        assert "ingested by the daemon" in run("watch", "sync", "notes")
        assert "cat.md" in run("search", "where does the cat sleep", "--collection", "notes")
        process.terminate()
        process.communicate(timeout=60)


def search_until(question: str, words: str) -> str:
    """Search until the best place has these words; the name of its file."""
    link = connect_daemon(Path("data"))
    while True:  # the test's own time limit ends it
        with suppress(IngestError):  # it is not there yet
            hits = link.search("demo", question, 1)
            if hits and words in hits[0].text:
                return Path(hits[0].path).name
        threading.Event().wait(0.1)


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")


def test_serve_without_demo_runs_until_stopped(folder: Path) -> None:
    with served("--data", "elsewhere") as process:
        read_until(process, "vedette shell")
        process.terminate()
        assert process.communicate(timeout=60)[0] == "Stopped. elsewhere was closed cleanly.\n"
    assert process.returncode == 0


def test_second_engine_is_refused(folder: Path) -> None:
    with served() as process:
        read_until(process, "vedette shell")
        found = read_server_file(folder / "data")
        assert found is not None
        command: list[str] = [str(PROGRAM), "serve", "--port", "0", "--http-port", "0"]
        second = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        process.terminate()
        process.communicate(timeout=60)
    assert second.returncode == 1
    assert f"pid {found.pid}" in second.stderr
    assert "One engine at a time can open a data directory." in second.stderr


def test_port_in_use_is_reported(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command: list[str] = [str(PROGRAM), "serve", "--port", str(port), "--http-port", "0"]
        found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert found.returncode == 1
    assert f"127.0.0.1:{port} is in use by another program" in found.stderr
    assert "Traceback" not in found.stderr


def test_workers_refuse_the_port_of_another_server(folder: Path) -> None:
    """SO_REUSEPORT would let them: its clients would come to this database, and ours to that one."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = [str(PROGRAM), "serve", "--http-port", "0", "--workers", "1", "--port", str(port)]
        found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert found.returncode == 1
    assert f"127.0.0.1:{port} is in use by another program" in found.stderr


@pytest.mark.parametrize(
    ("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]"), ("0.0.0.0", None), ("::", None)]
)
def test_connect_host(host: str, shown: str | None) -> None:
    assert connect_host(host) == (shown or socket.gethostname())


def test_public_address_requires_authentication(folder: Path) -> None:
    command: list[str] = [str(PROGRAM), "serve", "--host", "0.0.0.0", "--port", "0", "--http-port", "0"]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert found.returncode == 1
    assert "set auth_keys" in found.stderr


def command(*arguments: str, given: str | None = None) -> str:
    found = subprocess.run(
        [str(PROGRAM), *arguments], input=given, capture_output=True, text=True, check=False, timeout=120
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_commands_use_the_running_server(folder: Path) -> None:
    with served() as process:
        read_until(process, "vedette shell")
        (folder / "board.mew").write_text("node Note { text: String }\n")
        assert "Note" in command("define", "board.mew")
        command("run", "-", given='SPAWN n: Note { text = "hello" }')
        assert "hello" in command("run", "-", given="MATCH n: Note RETURN n.text")
        shown = command("watch", "WATCH n: Note RETURN n.text", "--count", "1")
        assert '"n.text": "hello"' in shown
        assert "Note" in command("shell", "data", given=".types\nMATCH n: Note RETURN n.text;\n")
        process.terminate()
        process.communicate(timeout=60)
    assert not (folder / "data" / "server.json").exists()
    assert "hello" in command("run", "-", given="MATCH n: Note RETURN n.text"), "without it, by themselves"


def test_killed_engine_is_restarted_without_data_loss(folder: Path) -> None:
    with served() as process:
        read_until(process, "vedette shell")
        first = read_server_file(folder / "data")
        assert first is not None
        (folder / "board.mew").write_text("node Note { text: String }\n")
        command("define", "board.mew")
        command("run", "-", given='SPAWN n: Note { text = "kept" }')
        os.kill(first.pid, signal.SIGKILL)
        read_until(process, "vedette shell")
        assert "kept" in command("run", "-", given="MATCH n: Note RETURN n.text")
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_engine_stops_when_the_supervisor_is_killed(folder: Path) -> None:
    with served() as process:
        read_until(process, "vedette shell")
        process.kill()
        assert process.stdout is not None
        assert "Stopped. data was closed cleanly." in process.stdout.read()


def renew(process: subprocess.Popen[str], folder: Path, n: int) -> None:
    """All workers, one after the other."""
    if n == 10:
        process.send_signal(signal.SIGHUP)


def lose(process: subprocess.Popen[str], folder: Path, n: int) -> None:
    """One worker is told to stop, the other is killed: both are started again, and nothing else ends."""
    for worker, when, number in ((0, 5, signal.SIGTERM), (1, 25, signal.SIGKILL)):
        if n == when:
            os.kill(worker_process(folder, worker), number)


def worker_process(folder: Path, worker: int) -> int:
    """Of a worker that is at work, or will be."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for mark in (folder / "data").glob(f"gateway-*-worker-{worker}.pid"):
            if text := mark.read_text():
                return int(text)
        time.sleep(0.02)
    raise AssertionError(f"worker {worker} did not start")


@pytest.mark.parametrize("disturb", [renew, lose])
def test_workers_share_a_port_and_stop_without_losing_events(
    folder: Path, disturb: Callable[[subprocess.Popen[str], Path, int], None]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with served("--port", str(port), "--workers", "2") as process:
        read_until(process, "vedette shell")
        for worker in (0, 1):
            worker_process(folder, worker)
        with (
            connect_sync(f"ws://127.0.0.1:{port}") as writer,
            connect_sync(f"ws://127.0.0.1:{port}") as reader,
        ):
            writer.define("node Note { n: Int }")
            watch = reader.watch("WATCH n: Note RETURN n.n")
            kept = reader.watch("WATCH n: Note [delivery: reliable] RETURN n.n")
            assert watch.next(timeout=60) is not None
            assert kept.next(timeout=60) is not None
            for n in range(40):
                disturb(process, folder, n)
                write_once(writer, n)
            for each in (watch, kept):
                seen: list[int] = []
                while len(seen) < 40:
                    event = each.next(timeout=60)
                    assert event is not None
                    assert event.type == "added"
                    assert event.match is not None
                    seen.append(event.match["n.n"])
                assert seen == list(range(40))
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0


def write_once(writer: vedette.BlockingSession, n: int) -> None:
    """Write, whatever happens to the line; look before writing again."""
    while True:
        try:
            if not writer.execute("MATCH n: Note WHERE n.n = $n RETURN n", n=n).rows:
                writer.execute("SPAWN n: Note { n = $n }", n=n)
            return
        except vedette.GatewayError as error:
            if error.code != "E4002":
                raise


def test_demo_board_is_filled_once() -> None:
    with vedette.open(":memory:") as db:
        assert demo.prepare(db.database("demo"))
        assert not demo.prepare(db.database("demo"))
        with db.database("demo").session() as session:
            assert session.execute("MATCH t: Task RETURN COUNT(*)").rows == [(len(demo.TASKS),)]
            assert session.execute("MATCH p: Person RETURN COUNT(*)").rows == [(len(demo.PEOPLE),)]


def test_demo_board_is_a_pipeline_source(folder: Path) -> None:
    for _ in range(2):
        demo.add_source(folder)
    journal = open_journal(folder)
    ((name, kind, tenant),) = [(source.name, source.kind, source.tenant) for source in journal.sources()]
    assert (name, kind, tenant) == ("board", "graph", "demo")
    journal.close()


def test_demo_board_keeps_its_size() -> None:
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

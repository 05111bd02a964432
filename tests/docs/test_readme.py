"""README.md: it is short, its statements run, and its commands work in order, with and without the demo."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import psycopg
import pytest

import vedette
from tests.docs.examples import blocks_of
from tests.support.browser import CHROMIUM, Browser

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAX_LINES = 120
WAIT_SECONDS = 240.0
"""How long a command may take to print what is expected: Spark starts on a busy machine."""
PORTS = ("7707", "7708", "7717", "7718")
SHOP = "postgresql://localhost/shop"


# The text


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= MAX_LINES


def test_links_resolve() -> None:
    targets = re.findall(r"\]\(([^):]+)\)", README)
    assert targets
    assert not [target for target in targets if not (ROOT / target).exists()]


def table_statements() -> list[str]:
    """Return the statements of the table of needs."""
    return re.findall(r"^\| .* \| `(WATCH .*)` \|$", README, re.MULTILINE)


def test_statements_of_the_table_run() -> None:
    assert len(table_statements()) == 5
    with vedette.open(":memory:") as db:
        db.define('node Job { to: String, status: String = "new" } node Alert { about: String }')
        with db.session() as session:
            for statement in table_statements():
                session.watch(statement)
            session.execute('SPAWN j: Job { to = "ann", status = "failed" }')
            assert session.execute("MATCH a: Alert RETURN a.about").rows == [("ann",)], "the trigger ran"


# The commands


class Terminal:
    """Types commands in a folder that looks like a clone after `make run`. It contains .venv and docs only."""

    def __init__(self, folder: Path, replacements: Mapping[str, str]) -> None:
        self.folder = folder
        self._replacements = replacements
        """What is written ▸ what is typed: free ports and the PostgreSQL server of the tests."""
        (folder / ".venv").symlink_to(sys.prefix)
        shutil.copytree(ROOT / "docs", folder / "docs")

    def adapt(self, text: str) -> str:
        for written, typed in self._replacements.items():
            text = text.replace(written, typed)
        return text

    def run(self, command: str, text: str | None = None) -> str:
        """Run a command to its end. Return what it printed; it must succeed."""
        done = subprocess.run(
            ["bash", "-c", self.adapt(command)],
            cwd=self.folder,
            env=environment(),
            input=text,
            stdin=None if text is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    @contextmanager
    def start(self, command: str, ready: str) -> Iterator[Callable[[], str]]:
        """Run a command in the background until the block ends, then press Ctrl-C. It must then exit with 0.

        The block begins when the command has printed `ready`. It gets a function that returns everything printed.
        """
        with tempfile.NamedTemporaryFile("w+", suffix=".log") as log:
            process = subprocess.Popen(
                shlex.split(self.adapt(command)),
                cwd=self.folder,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

            def printed() -> str:
                return Path(log.name).read_text(encoding="utf-8")

            try:
                wait_until(lambda: ready in printed() or process.poll() is not None)
                assert ready in printed(), f"{command}\n{printed()}"
                yield printed
                process.send_signal(signal.SIGINT)
                assert process.wait(WAIT_SECONDS) in (0, 130), f"{command}\n{printed()}"
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("VEDETTE_")}


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_true():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.1)


def commands(text: str) -> list[str]:
    """Return the commands of a block, without comments."""
    lines = [re.sub(r"(^|\s+)# .*", "", line).strip() for line in text.splitlines()]
    return [line for line in lines if line]


def demo_command() -> str:
    """Return what `make run` runs."""
    found = re.search(r"^run: .*\n\t(.*) \$\(ARGS\)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found
    return found[1]


@pytest.fixture
def shop(postgres_url: str) -> Iterator[str]:
    """A PostgreSQL database with orders. The README calls it postgresql://localhost/shop."""
    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute("CREATE DATABASE readme_shop")
        address = re.sub(r"/[^/?]*(\?|$)", r"/readme_shop\1", postgres_url, count=1)
        with psycopg.connect(address, autocommit=True) as database:
            database.execute("CREATE TABLE orders (id int PRIMARY KEY, total int)")
            database.execute("INSERT INTO orders VALUES (1, 150), (2, 50)")
        yield address
        server.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active"
        )
        server.execute("DROP DATABASE IF EXISTS readme_shop WITH (FORCE)")


@pytest.fixture
def ports() -> dict[str, str]:
    """Free ports for the ones of the README, so that tests can run beside each other."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in PORTS]
        return {port: str(each.getsockname()[1]) for port, each in zip(PORTS, sockets, strict=True)}


def type_readme(terminal: Terminal, stack: ExitStack, *, with_spark: bool) -> None:
    """Type every command of the README in order, as a reader would. Servers run until the stack is closed."""
    for block in blocks_of(README):
        name = next((word.removeprefix("name=") for word in block.words if word.startswith("name=")), None)
        if name is not None:
            (terminal.folder / name).write_text(terminal.adapt(block.text))
        if name == "client.py":
            printed = terminal.run(".venv/bin/python client.py")
            assert "initial" in printed
            assert "eve@example.org" in printed
        if block.language == "sh":
            for command in commands(block.text):
                type_command(terminal, stack, command, with_spark=with_spark)


def type_command(terminal: Terminal, stack: ExitStack, command: str, *, with_spark: bool) -> None:
    words = shlex.split(command)
    match words[:2]:
        case ["make", _]:
            pass  # the demo is started by the test, and this is a test
        case [".venv/bin/vedette", "serve"]:
            options = "" if with_spark else " --no-pipeline"
            stack.enter_context(terminal.start(command + options, "Ctrl-C stops it."))
        case [".venv/bin/vedette", "watch"]:
            with terminal.start(command, '"o.total": 150' if with_spark else '"initial"'):
                pass
        case _:
            printed = terminal.run(command)
            expected = {"first.py": "send to ann@example.org", "shell": "bob@example.org", "search": "docs/"}
            for word, text in expected.items():
                assert word not in words or text in printed, f"{command}\n{printed}"


def type_screen(terminal: Terminal, screen: str) -> None:
    """Type every command of the demo's screen."""
    lines = [line.strip() for line in screen.splitlines() if line.startswith("  ")]
    typed = [line for line in lines if line.startswith(("/", ".venv", "vedette", "wqm", "curl"))]
    assert len(typed) == 4, screen
    for command in typed:
        words = shlex.split(command)
        if words[0] == "curl":
            with urllib.request.urlopen(words[-1], timeout=WAIT_SECONDS) as events:
                assert events.readline()
        elif words[1] == "watch":
            with terminal.start(command, '"changed"'):
                pass
        elif words[1] == "shell":
            assert "Ada" in terminal.run(command, text="MATCH p: Person RETURN p.name;\n")
        else:
            wait_until(partial(is_printed, terminal, command, "site-diary.md"))
    assert urllib.request.urlopen(lines[0].split()[0], timeout=WAIT_SECONDS).status == 200


def is_printed(terminal: Terminal, command: str, text: str) -> bool:
    return text in terminal.run(command)


@pytest.mark.timeout(900)
def test_commands_work_beside_the_demo(tmp_path: Path, ports: dict[str, str], shop: str) -> None:
    terminal = Terminal(tmp_path, {**ports, SHOP: shop})
    options = " --port 7707 --http-port 7708 --pace 0.5 --no-pipeline"
    with terminal.start(demo_command() + options, "wqm search") as screen:
        type_screen(terminal, screen())
        with ExitStack() as stack:
            type_readme(terminal, stack, with_spark=True)
        type_screen(terminal, screen())


@pytest.mark.timeout(900)
def test_commands_work_without_the_demo(tmp_path: Path, ports: dict[str, str], shop: str) -> None:
    terminal = Terminal(tmp_path, {**ports, SHOP: shop})
    with ExitStack() as stack:
        type_readme(terminal, stack, with_spark=False)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: scripts/ensure-test-services installs it")
def test_the_browser_client(tmp_path: Path, ports: dict[str, str]) -> None:
    terminal = Terminal(tmp_path, ports)
    (script,) = (block.text for block in blocks_of(README) if block.language == "js")
    loop = "console.log(event.type, event.match);"
    assert loop in script
    returning = terminal.adapt(script).replace(loop, "return event.type;")
    (tmp_path / "job.mew").write_text('node Job { to: String, status: String = "new" }')
    terminal.run(".venv/bin/vedette define job.mew")
    with (
        terminal.start(".venv/bin/vedette serve --port 7717 --http-port 7718", "Ctrl-C stops it."),
        Browser() as browser,
    ):
        assert browser.run(terminal.adapt("http://127.0.0.1:7718/"), returning) == "initial"

"""The wheel works alone: installed with its declared dependencies and nothing else, without a package index.

`make setup-dev` fills build/wheels with the locked versions of these dependencies.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

import vedette
from vedette.extras import EXTRAS

ROOT = Path(__file__).parents[2]
WHEELS = ROOT / "build" / "wheels"
WAIT_SECONDS = 200.0
"""Time limit for a process on a loaded machine."""

pytestmark = pytest.mark.timeout(600)  # the first test also builds and installs the wheel


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """A virtual environment with the wheel installed."""

    wheel: Path
    programs: Path
    """The folder with `python`, `vedette` and `wqm`."""

    def run(self, *command: str, folder: Path, text: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.programs / command[0], *command[1:]],
            cwd=folder,
            env=environment(),
            input=text,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
            check=False,
        )

    @contextmanager
    def serve(self, folder: Path, *options: str) -> Iterator[Server]:
        log = folder / "serve.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [self.programs / "vedette", "serve", "--port", "0", "--http-port", "0", *options],
                cwd=folder,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            with process:
                try:
                    yield Server(process=process, folder=folder, log=log)
                finally:
                    if process.poll() is None:
                        process.kill()


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    process: subprocess.Popen[bytes]
    folder: Path
    log: Path

    def wait_for(self, *texts: str) -> str:
        """Wait until the server printed all of these texts. Return everything it printed."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            printed = self.log.read_text()
            if all(text in printed for text in texts):
                return printed
            assert self.process.poll() is None, f"the server exited:\n{printed}"
            assert time.monotonic() < deadline, f"no {texts} in\n{printed}"
            time.sleep(0.05)

    def get(self, path: str) -> bytes:
        port = json.loads((self.folder / "data" / "server.json").read_text())["http_port"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=WAIT_SECONDS) as answer:
            body: bytes = answer.read()
            return body

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT_SECONDS)


def environment() -> dict[str, str]:
    """Return an environment without settings of Python, pip or Vedette."""
    prefixes = ("PIP_", "PYTHON", "VEDETTE_")
    return {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    assert WHEELS.is_dir(), "build/wheels is missing: run `make setup-dev`"
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]

    def run(*command: str | Path) -> None:
        subprocess.run(command, env=environment(), check=True, timeout=WAIT_SECONDS)

    run(*pip, "wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
    programs = folder / "venv" / "bin"
    python = str(programs / "python")
    run(*pip, "--python", python, "install", "--no-index", "--find-links", WHEELS, wheel)
    return Installation(wheel=wheel, programs=programs)


def test_metadata(installation: Installation) -> None:
    with ZipFile(installation.wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
        assert not [name for name in archive.namelist() if name.startswith("vedette/_compiled/")]
    assert metadata["Version"] == vedette.__version__
    assert set(metadata.get_all("Provides-Extra", [])) == EXTRAS.keys()


def test_no_package_of_an_extra_is_installed(installation: Installation, tmp_path: Path) -> None:
    """Otherwise the other tests of this file would prove nothing."""
    program = f"import importlib.util as u; print([p for p in {sum(EXTRAS.values(), ())} if u.find_spec(p)])"
    assert installation.run("python", "-c", program, folder=tmp_path).stdout == "[]\n"


def test_a_watch_inside_a_program(installation: Installation, tmp_path: Path) -> None:
    program = """
import vedette

with vedette.open("data") as db:
    db.define('node Job { to: String, status: String = "new" }')
    with db.session() as s:
        live = s.watch('WATCH j: Job WHERE j.status = "new" RETURN j.to')
        s.execute("SPAWN j: Job { to = $to }", to="ann@example.org")
        print([event.type for event in live.poll()])
print(vedette.__file__)
"""
    done = installation.run("python", "-c", program, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    events, place = done.stdout.splitlines()
    assert events == "['initial', 'added']"
    assert Path(place).is_relative_to(installation.programs.parent)


def test_serve_starts_answers_and_stops(installation: Installation, tmp_path: Path) -> None:
    with installation.serve(tmp_path) as server:
        server.wait_for("Ctrl-C")
        assert json.loads(server.get("/v1/server"))
        assert json.loads(server.get("/ready")) == {"status": "ready"}
        assert b"export async function connect" in server.get("/static/vedette.js")
        assert b"vedette_" in server.get("/metrics")
        statement = "MATCH t: _Watch RETURN t;"
        done = installation.run("vedette", "run", "-", folder=tmp_path, text=statement)
        assert done.returncode == 0, done.stderr
        assert server.stop() == 0, server.log.read_text()


def test_demo_runs_without_extras(installation: Installation, tmp_path: Path) -> None:
    with installation.serve(tmp_path, "--demo", "--pace", "0.05", "--log-level", "info") as server:
        printed = server.wait_for("Ctrl-C", "todo ▸ doing")
        assert server.stop() == 0
    assert "wqm" not in printed, "the demo offers a search that cannot work"
    assert "error" not in server.log.read_text()


def test_shell_reads_a_pipe(installation: Installation, tmp_path: Path) -> None:
    text = 'node Task { title: String };\nSPAWN t: Task { title = "write" };\nMATCH t: Task RETURN t.title;\n'
    done = installation.run("vedette", "shell", "data", folder=tmp_path, text=text)
    assert done.returncode == 0, done.stderr
    assert "write" in done.stdout


def test_doctor_lists_the_extras(installation: Installation, tmp_path: Path) -> None:
    done = installation.run("vedette", "doctor", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stdout
    findings = {record["check"]: record for record in map(json.loads, done.stdout.splitlines())}
    for extra in EXTRAS:
        found = findings[f"vedette[{extra}]"]
        assert found["status"] == "warn"
        assert f"pip install 'vedette[{extra}]'" in found["advice"]


@pytest.mark.parametrize(
    ("extra", "command"),
    [
        ("pipeline", "vedette source add mongodb mongodb://localhost/shop --name shop"),
        ("pipeline", "vedette pipeline"),
        ("pipeline", "vedette capture --out captured"),
        ("pipeline", "vedette replay captured --out matches"),
        ("pipeline", "vedette shadow captured --candidate other"),
        ("files", "wqm watch sync"),
        ("files", "wqm search anything --collection notes"),
        ("files", "wqm daemon"),
    ],
)
def test_a_missing_extra_is_named_in_one_sentence(
    installation: Installation, tmp_path: Path, extra: str, command: str
) -> None:
    (tmp_path / "notes").mkdir()
    installation.run("wqm", "watch", "add", "notes", "--collection", "notes", folder=tmp_path)
    done = installation.run(*command.split(), folder=tmp_path)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("installation error: E0102 MISSING_EXTRA: ")
    assert line.endswith(f": run pip install 'vedette[{extra}]'")


def test_sources_and_folders_can_be_added_without_extras(installation: Installation, tmp_path: Path) -> None:
    """Another process may read them, so each command works and notes what is missing here. So does the server, once."""
    (tmp_path / "notes").mkdir()
    commands = {
        "vedette source add postgres postgresql://localhost/shop --name shop": "pipeline",
        "wqm watch add notes --collection notes": "files",
    }
    for command, extra in commands.items():
        done = installation.run(*command.split(), folder=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count(f"pip install 'vedette[{extra}]'") == 1
    notes = [f"pip install 'vedette[{extra}]'" for extra in EXTRAS]
    with installation.serve(tmp_path) as server:
        server.wait_for("Ctrl-C", *notes)
        assert server.stop() == 0
    printed = server.log.read_text()
    assert [printed.count(note) for note in notes] == [1, 1]
    assert "restart" not in printed

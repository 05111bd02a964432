"""The shell as a person meets it: keys go in, a screen comes out."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

import vedette
from vedette.cli.output.display import TableDisplay
from vedette.cli.shell.input import handle_input
from vedette.cli.shell.session import ShellSession
from vedette.cli.shell.terminal import defer_interrupts, history_file, prompt_session, run_interactive

PROGRAM = Path(sys.executable).with_name("vedette")
ENTER, TAB, CTRL_C, CTRL_D, ALT_ENTER, UP = "\r", "\t", "\x03", "\x04", "\x1b\r", "\x1b[A"


def typed(keys: str, place: str = ":memory:") -> None:
    """What comes of these keys, with a terminal that shows nothing."""
    with (
        vedette.open(place) as home,
        ShellSession(home, TableDisplay()) as conversation,
        create_pipe_input() as keyboard,
    ):
        keyboard.send_text(keys)
        run_interactive(conversation, prompt_session(conversation, input=keyboard, output=DummyOutput()))


def test_key_bindings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    typed(
        f"node Task {{{ENTER}title: String{ENTER}}}{ENTER}{ENTER}"  # goes on; an empty line ends it
        f'SPAWN t: Task {{ title = "a" }}{ENTER}'  # a whole line runs at once
        f"MATCH t: Task{ENTER}RETURN t.title{ENTER}LIMIT 1;{ENTER}"  # several lines until `;`
        f"this is dropped{CTRL_C}"
        f"MATCH t: Task{ALT_ENTER}RETURN t.title AS again{ENTER}{ENTER}"
        f"{CTRL_D}"
    )
    seen = capsys.readouterr()
    lines = [" ".join(line.split()) for line in seen.out.splitlines() if not line.startswith("+")]
    assert lines == [
        *["defined Task", "1 created", "| t.title |", "| a |", "1 row"],
        *["| again |", "| a |", "1 row"],
    ]
    assert "error" not in seen.err


def test_error_does_not_end_the_shell(capsys: pytest.CaptureFixture[str]) -> None:
    typed(f"MATCH t: Nothing RETURN t{ENTER}BEGIN{ENTER}nonsense{ENTER}ROLLBACK{ENTER}.quit{ENTER}", "data")
    seen = capsys.readouterr()
    assert seen.out == "ok\nok\n"
    assert "E2001" in seen.err
    assert "E1001" in seen.err
    assert "BEGIN" in Path("data/shell_history").read_text()
    assert Path("data/shell_history").stat().st_mode & 0o077 == 0, "nobody else reads it"


def test_prompt_shows_database_actor_and_transaction() -> None:
    with vedette.open(":memory:") as home, ShellSession(home, TableDisplay()) as conversation:
        assert conversation.prompt == "vedette"
        handle_input(conversation, "node Person; SPAWN p: Person; BEGIN;")
        assert conversation.prompt == "vedette [transaction]"
        handle_input(conversation, "MATCH p: Nobody RETURN p")
        assert conversation.prompt == "vedette [aborted]"
        handle_input(conversation, "ROLLBACK; BEGIN SESSION AS #p")
        assert conversation.prompt.startswith("vedette as n")
        handle_input(conversation, "END SESSION")
        handle_input(conversation, ".use team-b")
        assert conversation.prompt == "vedette:team-b"


def test_history_is_stored_in_the_data_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert history_file("data") == Path("data/shell_history")
    assert history_file(":memory:") == Path("/state/vedette/shell_history")
    monkeypatch.delenv("XDG_STATE_HOME")
    assert history_file("postgresql://host/db") == Path.home() / ".local/state/vedette/shell_history"


def test_first_interrupt_does_not_stop_a_statement(capfd: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT)
    with defer_interrupts():
        os.kill(os.getpid(), signal.SIGINT)
    assert "still running" in capfd.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before


def test_second_interrupt_exits() -> None:
    code = (
        "import os, signal\nfrom vedette.cli.shell.terminal import defer_interrupts\n"
        "with defer_interrupts():\n    for _ in range(2): os.kill(os.getpid(), signal.SIGINT)\n    print('never')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "")


# A real terminal


class Screen:
    """One side of a pseudo-terminal; the other has the shell on it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.seen = ""

    def type(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    def wait_for(self, words: str) -> str:
        """What came on the screen, colours taken away, up to these words."""
        while words not in (plain := re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.seen)):
            ready, _, _ = select.select([self._descriptor], [], [], 60)
            assert ready, f"{words!r} never came:\n{plain}"
            try:
                self.seen += os.read(self._descriptor, 65_536).decode(errors="replace")
            except OSError as error:  # the other side has gone
                raise AssertionError(f"{words!r} never came:\n{plain}") from error
        self.seen = ""
        return plain


@contextmanager
def terminal(*arguments: str, **environment: str) -> Iterator[tuple[Screen, subprocess.Popen[bytes]]]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
    process = subprocess.Popen(
        [PROGRAM, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1", **environment},
    )
    os.close(theirs)
    try:
        yield Screen(ours), process
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_shell_on_a_real_terminal(folder: Path) -> None:
    with terminal("shell") as (screen, process):
        screen.wait_for("vedette>")
        screen.type(f"node Task {{ title: String }}{ENTER}")
        screen.wait_for("defined Task")
        screen.type(f'SPAWN t: Task {{ title = "grün" }}{ENTER}')
        screen.wait_for("1 created (")
        screen.type(f"MATCH t: Task{ENTER}")
        screen.wait_for("..>")
        screen.type(f"RETURN t.ti{TAB}")
        screen.wait_for("tle")
        screen.type(f";{ENTER}")
        assert "│ grün" in screen.wait_for("1 row (")
        screen.type(UP)
        screen.wait_for("RETURN t.title;")
        screen.type(CTRL_C)
        screen.wait_for("vedette>")
        screen.type(f"MATCH t: Task RETURN t.titel{ENTER}")
        assert "^^^^^^^" in screen.wait_for("line 1, column 22")
        screen.type(f"BEGIN{ENTER}")
        screen.wait_for("vedette [transaction]>")
        screen.type(CTRL_D)
        screen.wait_for("The open transaction was rolled back.")
        assert process.wait(timeout=60) == 0


def test_no_color(folder: Path) -> None:
    with terminal("parse", "MATCH t: Task RETUR t") as (screen, _):
        screen.wait_for("parse error")
    with terminal("parse", "MATCH t: Task RETUR t", NO_COLOR="1") as (screen, process):
        process.wait(timeout=60)
        raw = os.read(screen._descriptor, 65_536).decode()
    assert "RETUR" in raw
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", raw)

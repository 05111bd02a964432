"""watch: what is printed, when it ends, and with which exit code."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import vedette
from tests.integration.cli.conftest import Cli

PROGRAM = Path(sys.executable).with_name("vedette")
SCRIPT = """\
--- A board.
node Task { title: String [required], status: String = "todo", priority: Int = 0 }
SPAWN a: Task { title = "a", priority = 2 };
SET #a.status = "done";
KILL #a;
"""
ALL = "WATCH t: Task RETURN t.title, t.status"


@pytest.fixture(autouse=True)
def script(folder: Path) -> Path:
    (folder / "script.mew").write_text(SCRIPT)
    return folder / "script.mew"


def records(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


# What is printed


def test_surplus_argument_suggests_the_data_option(cli: Cli) -> None:
    done = cli("watch", ALL, "data")
    assert done.exit_code != 0
    assert "Name the data directory with --data data" in done.stderr
    assert not Path("data").exists()


def test_events_are_json_lines_without_a_terminal(cli: Cli) -> None:
    done = cli("watch", ALL, "--exec", "script.mew", "--count", "4")
    assert done.exit_code == 0, done.stderr
    todo, finished = {"t.title": "a", "t.status": "todo"}, {"t.title": "a", "t.status": "done"}
    assert records(done.stdout) == [
        {"type": "initial", "tick": 0, "position": 1, "matches": []},
        {"type": "added", "tick": 0, "position": 2, "match": todo},
        {"type": "changed", "tick": 1, "position": 3, "match": finished, "prev": todo},
        {"type": "removed", "tick": 2, "position": 4, "match": finished},
    ]
    assert done.stderr == "data is a new data directory\nwatching w1_1; Ctrl-C stops\n"


def test_pretty_events(cli: Cli) -> None:
    done = cli("watch", "WATCH t: Task RETURN t.title, t", "--pretty", "--exec", "script.mew", "--count", "4")
    lines = [line.partition(" ")[2] for line in done.stdout.splitlines()]
    assert lines == [
        "initial 0 matches",
        'added t.title = "a", t = Task #n1_3 {title = "a", status = "todo", priority = 2}',
        'changed t.title = "a", t = Task #n1_3 {title = "a", status = "todo" → "done", priority = 2}',
        'removed t.title = "a", t = Task #n1_3 {title = "a", status = "done", priority = 2}',
    ]


WORK = "WATCH t: Task [mode: consume] RETURN t.title"
TWO = 'node Task { title: String } SPAWN a: Task { title = "a" } SPAWN b: Task { title = "b" }'


def test_unacknowledged_deliveries_return_to_the_queue(cli: Cli) -> None:
    cli("run", "-", input=TWO)
    done = cli("watch", WORK, "--count", "2")
    assert records(done.stdout)[1] == {
        "type": "consumed",
        "tick": 2,
        "position": 2,
        "match": {"t.title": "a"},
        "delivery_id": "d2_1",
    }
    done = cli("watch", WORK, "--count", "2", "--pretty")
    assert [line.partition(" ")[2] for line in done.stdout.splitlines()] == [
        "initial 0 matches",
        'consumed t.title = "a" (#d3_1)',
    ]


@pytest.mark.parametrize("options", ["mode: consume", "mode: consume, delivery: reliable"])
def test_ack_option_acknowledges_deliveries(cli: Cli, options: str) -> None:
    cli("run", "-", input=TWO)
    text = f"WATCH t: Task [{options}] RETURN t.title"
    assert cli("watch", text, "--count", "2", "--ack").exit_code == 0
    left = cli("run", "-", "--json", input="MATCH t: Task RETURN t.title")
    assert records(left.stdout)[-1]["rows"] == [["b"]]


def test_reliable_queue_is_not_acknowledged_by_default(cli: Cli) -> None:
    cli("run", "-", input=TWO)
    text = "q = WATCH t: Task [mode: consume, delivery: reliable] RETURN t.title"
    assert cli("watch", text, "--count", "3").exit_code == 0
    left = cli("run", "-", "--json", input="MATCH t: Task RETURN t.title")
    assert records(left.stdout)[-1]["rows"] == [["a"], ["b"]]


def test_no_initial(cli: Cli) -> None:
    cli(
        "run",
        "-",
        input='node Task { title: String, status: String = "todo" } SPAWN t: Task { title = "old" }',
    )
    script = 'SPAWN t: Task { title = "new" };'
    done = cli("watch", ALL, "--no-initial", "--count", "1", "--exec", "-", input=script)
    assert [record["match"]["t.title"] for record in records(done.stdout)] == ["new"]


def test_parameters_apply_to_watch_and_scripts(cli: Cli) -> None:
    text = "node Task { title: String, priority: Int = 0 } SPAWN t: Task { title = $title, priority = $low }"
    done = cli(
        *["watch", "WATCH t: Task WHERE t.priority >= $low [initial: none] RETURN t.title", "--exec", "-"],
        *["--param", "low=3", "--param", "title=x", "--count", "1"],
        input=text,
    )
    assert records(done.stdout)[0]["match"] == {"t.title": "x"}


def test_policies_filter_the_events_of_an_actor(cli: Cli) -> None:
    text = """\
        node User { name: String }
        node Note { text: String, owner: User? }
        policy watch: ON META SPAWN(_Watch) | MATCH(u: User) ALLOW IF true
        policy own: ON MATCH(n: Note) ALLOW IF n.owner = current_actor()
        SPAWN ann: User { name = "Ann" } RETURNING id
    """
    made = cli("run", "-", "--json", input=text)
    ann = records(made.stdout)[1]["rows"][0][0]
    script = 'SPAWN a: Note { text = "nobody\'s" }; SPAWN b: Note { text = "Ann\'s", owner = #$ann };'
    done = cli(
        *["watch", "WATCH n: Note [initial: none] RETURN n.text", "--actor", ann, "--param", f"ann={ann}"],
        *["--count", "1", "--exec", "-"],
        input=script,
    )
    assert done.exit_code == 0, done.stderr
    assert records(done.stdout)[0]["match"] == {"n.text": "Ann's"}


def test_terminal_output_is_pretty(folder: Path) -> None:
    with watching(ALL, "--exec", "script.mew", "--count", "2", terminal=True) as process:
        assert process.wait(60) == 0
        shown = os.read(process.screen, 65536).decode()
    assert "initial 0 matches" in shown
    assert 'added t.title = "a", t.status = "todo"' in shown
    assert "\x1b[32m" in shown, "what comes is green"


# How it ends


class Watching(subprocess.Popen[str]):
    screen: int
    """What a terminal shows of it; -1 when there is none."""


@contextmanager
def watching(*arguments: str, terminal: bool = False) -> Iterator[Watching]:
    screen, keyboard = pty.openpty() if terminal else (-1, -1)
    output = keyboard if terminal else subprocess.PIPE
    process = Watching([PROGRAM, "watch", *arguments], stdout=output, stderr=subprocess.PIPE, text=True)
    process.screen = screen
    watchdog = threading.Timer(200, process.kill)
    watchdog.start()
    try:
        yield process
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate()
        for each in (screen, keyboard):
            if each >= 0:
                os.close(each)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stops_on_signal(number: signal.Signals, folder: Path) -> None:
    with watching(ALL, "--exec", "script.mew") as process:
        assert process.stdout is not None
        seen = [json.loads(process.stdout.readline())["type"] for _ in range(4)]
        process.send_signal(number)
        rest, errors = process.communicate(timeout=60)
    assert (seen, rest) == (["initial", "added", "changed", "removed"], "")
    assert process.returncode == 0, errors
    with vedette.open("data") as db, db.session() as session:
        assert session.execute("MATCH s: _Watch RETURN COUNT(*)").rows == [(0,)], "closed in good order"


def test_ends_when_the_watch_is_cancelled(cli: Cli) -> None:
    script = f"{SCRIPT} MATCH s: _Watch DO CANCEL WATCH s.id;"
    done = cli("watch", ALL, "--exec", "-", input=script)
    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) == 4


def test_overflow_exits_with_1(cli: Cli) -> None:
    cli("run", "-", input="node Task { n: Int } SPAWN a: Task { n = 1 } SPAWN b: Task { n = 2 }")
    text = "WATCH t: Task [buffer: 1, on_full: error, initial: none] RETURN t.n"
    done = cli("watch", text, "--exec", "-", input="MATCH t: Task SET t.n = 3")
    assert done.exit_code == 1
    assert done.stderr.count("E8005 WATCH_BUFFER_OVERFLOW") == 1


def test_errors_are_reported_before_anything_runs(cli: Cli, folder: Path) -> None:
    done = cli("watch", "WATCH t: Tusk RETURN t", "--exec", "script.mew")
    assert done.exit_code == 1
    assert "E2001 UNKNOWN_TYPE" in done.stderr
    assert "^^^^" in done.stderr
    with vedette.open("data") as db, db.session() as session:
        assert session.execute("MATCH t: _TickState RETURN t.global_tick").rows == [(0,)]
    (folder / "bad.mew").write_text("SPAWN t Task")
    done = cli("watch", ALL, "--exec", "bad.mew")
    assert done.exit_code == 1
    assert done.stderr.startswith("bad.mew:1:9: parse error: E1001")


def test_failing_script_ends_the_command(cli: Cli) -> None:
    done = cli("watch", ALL, "--exec", "-", input=f"{SCRIPT}SPAWN t: Task;")
    assert done.exit_code == 1
    assert "stdin" not in done.stdout
    assert ":6:1: constraint violation: E3002 REQUIRED" in done.stderr
    assert len(done.stdout.splitlines()) == 4, "what happened before was shown"


def test_other_statements_are_refused(cli: Cli) -> None:
    assert "E1101" in cli("watch", "MATCH () RETURN 1").stderr
    assert "E8002" in cli("watch", "nothing").stderr
    assert cli("watch", ALL, "--count", "0").exit_code == 2


# Watches that last


def test_reliable_watch_continues(cli: Cli) -> None:
    cli("run", "-", input="node Task { title: String }")
    made = cli("watch", "board = WATCH t: Task [delivery: reliable] RETURN t.title", "--count", "1")
    assert records(made.stdout)[0]["type"] == "initial"
    assert "The watch is durable: `vedette watch board` continues it." in made.stderr
    cli("run", "-", input='SPAWN t: Task { title = "meanwhile" }')
    done = cli("watch", "board", "--count", "2", "--exec", "-", input='SPAWN t: Task { title = "now" }')
    assert [record["match"]["t.title"] for record in records(done.stdout)] == ["meanwhile", "now"]


def test_trigger_runs_without_a_reader(cli: Cli) -> None:
    cli("run", "-", input="node Task { title: String } node Note { text: String }")
    trigger = "noting = WATCH t: Task ON MATCH DO SPAWN n: Note { text = t.title } RETURN t.title"
    cli("watch", trigger, "--count", "1")
    cli("run", "-", input='SPAWN t: Task { title = "a" }')
    done = cli("run", "-", "--json", input="MATCH n: Note RETURN n.text")
    assert records(done.stdout)[0]["rows"] == [["a"]]


def test_an_external_collection_needs_a_server(cli: Cli) -> None:
    found = cli("watch", "WATCH o: shop::orders RETURN o")
    assert found.exit_code == 1
    assert "start `vedette serve` for this data directory" in found.stderr

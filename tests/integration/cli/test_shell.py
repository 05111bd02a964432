"""The shell: where an entry ends, what is answered, what is offered, how it looks."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

import vedette
from tests.integration.cli.conftest import Cli
from vedette.change import Event
from vedette.cli.output.values import format_event
from vedette.cli.shell.completion import CompletionContext, completions
from vedette.cli.shell.highlighting import highlight
from vedette.cli.shell.input import is_complete, split_entries

ONTOLOGY = """\
type Short = String [length: 1..20]
node Task { title: Short [required], status: String = "todo", due: Timestamp? }
abstract node Being
node Person: Being { name: String [required, unique] }
edge assigned_to(task: Task, person: Person) { since: Timestamp = now() }
"""

# Where an entry ends


@pytest.mark.parametrize(
    ("text", "finished"),
    [
        ("", True),
        ("MATCH t: Task RETURN t", True),
        ("COMMIT", True),
        (".help", True),
        (".explain MATCH", True),
        ("MATCH t: Task", False),
        ("MATCH t: Task\nRETURN t", False),
        ("MATCH t: Task\nRETURN t;", True),
        ("MATCH t: Task\nRETURN t\n", True),
        ("MATCH t: Task\n", True),
        ("node Task {", False),
        ("node Task {\n  title: String;", True),
        ("ontology Board {\n  node Task;", False),
        ("MATCH t: Task\nRETUR t", True),
    ],
)
def test_enter_runs_a_complete_entry(text: str, finished: bool) -> None:
    assert is_complete(text) == finished


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("MATCH t: T RETURN t;\nCOMMIT;\n", ["MATCH t: T RETURN t;\n", "COMMIT;\n"]),
        ("MATCH t: T\nRETURN t\nLIMIT 1\n\nCOMMIT", ["MATCH t: T\nRETURN t\nLIMIT 1\n\n", "COMMIT"]),
        ("node T {\n\n  a: Int\n}\n\n.types\n", ["node T {\n\n  a: Int\n}\n\n", ".types"]),
        ("BEGIN\n.types\nCOMMIT\n", ["BEGIN\n", ".types", "COMMIT\n"]),
        ("ontology B {\n node T;\n}\n", ["ontology B {\n node T;\n}\n"]),
        ("\n\n  \n", []),
        ("MATCH t: T\n", ["MATCH t: T\n"]),
    ],
)
def test_split_entries(text: str, said: list[str]) -> None:
    assert list(split_entries(text.splitlines(keepends=True))) == said


# Through a pipe


def test_piped_input(cli: Cli) -> None:
    done = cli(
        "shell", ":memory:", input=f'{ONTOLOGY}\nSPAWN t: Task {{ title = "a" }};\n.types\n.quit\nnonsense;'
    )
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("defined Task, Being, Person, assigned_to, Short\n1 created\n")
    rows = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "| Task | node | title: String [required], status: String, due: Timestamp? |" in rows
    assert "| Being | abstract node | none |" in rows
    assert "| Person | node: Being | name: String [required, unique] |" in rows
    assert "| assigned_to | edge(task: Task, person: Person) | since: Timestamp |" in rows


def test_first_error_ends_a_piped_shell(cli: Cli) -> None:
    done = cli("shell", ":memory:", input="node T;\nSPAWN t: U;\nSPAWN t: T;\n")
    assert done.exit_code == 1
    assert done.stdout == "defined T\n"
    assert "E2001" in done.stderr
    assert "^" in done.stderr


def test_results_as_json(cli: Cli) -> None:
    done = cli(
        "shell",
        ":memory:",
        "--json",
        input="node T;\nSPAWN t: T;\n.timing on\nMATCH t: T RETURN t;\n.databases",
    )
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert records[0] == {"defined": ["T"]}
    assert records[1]["created"] == 1
    assert records[2]["rows"][0][0]["_type"] == "T"
    assert records[2]["seconds"] > 0
    assert records[3] == {"columns": ["database", "in use"], "rows": [["default", True]]}


def test_databases_are_separate(cli: Cli, folder: Path) -> None:
    done = cli("shell", "place", input="node T;\n.use other\n.types\n.databases\n.use default\n.types\n")
    assert done.exit_code == 0, done.stderr
    assert "'other' is a new database" in done.stderr
    assert "No types yet." in done.stderr
    assert "| other    | true   |" in done.stdout
    assert "| default  | false  |" in done.stdout
    assert "| T " in done.stdout
    assert "a transaction" not in done.stderr


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (".nonsense", "Unknown command .nonsense. The commands are .help .types"),
        (".use", ".use needs the name of a database"),
        (".explain", ".explain needs a statement"),
        (".timing maybe", ".timing takes on or off"),
        (".types Nothing", "Unknown type 'Nothing'"),
        ("BEGIN;\n.use other", "COMMIT or ROLLBACK it first"),
        (".explain MATCH t: Nothing RETURN t", "E2001"),
    ],
)
def test_invalid_dot_command(cli: Cli, entry: str, words: str) -> None:
    done = cli("shell", ":memory:", input=f"{entry}\n")
    assert done.exit_code == 1
    assert words in done.stderr


def test_dot_commands(cli: Cli) -> None:
    done = cli(
        "shell", ":memory:", input=f"{ONTOLOGY}\n.help\n.timing on\nBEGIN;\n.explain MATCH t: Task RETURN t\n"
    )
    assert done.exit_code == 0, done.stderr
    assert ".explain STATEMENT" in done.stdout
    assert "Timing is on." in done.stderr
    assert "ok (" in done.stdout
    assert "| scan | t: Task |" in " ".join(done.stdout.split())
    assert done.stderr.endswith("The open transaction was rolled back.\n")


def test_policies_apply_to_the_actor(cli: Cli, folder: Path) -> None:
    with vedette.open("data") as db, db.session() as session:
        db.define('node Person { name: String } policy own: ON MATCH(p: Person) ALLOW IF p.name = "Ada"')
        ((ada,),) = session.execute('SPAWN p: Person { name = "Ada" } RETURNING id').rows
        session.execute('SPAWN p: Person { name = "Bob" }')
    done = cli("shell", "--actor", ada, input="MATCH p: Person RETURN p.name;\n")
    assert "Ada" in done.stdout
    assert "Bob" not in done.stdout


# Watches

WATCHED = """\
node Task { title: String, status: String = "todo" };
todo = WATCH t: Task WHERE t.status = "todo" RETURN t.title;
SPAWN t: Task { title = "a" };
SET #t.title = "b";
BEGIN; SET #t.status = "done";
COMMIT;
CANCEL WATCH #todo;
SPAWN t: Task { title = "c" };
"""


def test_events_are_printed_after_each_statement(cli: Cli) -> None:
    done = cli("shell", ":memory:", input=WATCHED)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines() == [
        *["defined Task", "handle w1_1", "todo initial 0 matches"],
        *["1 created", 'todo added t.title = "a"'],
        *["1 modified", 'todo changed t.title = "a" → "b"'],
        *["ok", "1 modified", "ok", 'todo removed t.title = "b"'],
        *["ok", "1 created"],
    ]
    records = [
        json.loads(line) for line in cli("shell", ":memory:", "--json", input=WATCHED).stdout.splitlines()
    ]
    told = [record for record in records if "watch" in record]
    assert [record["type"] for record in told] == ["initial", "added", "changed", "removed"]
    assert told[1] == {"watch": "todo", "type": "added", "tick": 0, "position": 2, "match": {"t.title": "a"}}


CONSUMED = """\
node Job { name: String };
SPAWN a: Job { name = "a" }; SPAWN b: Job { name = "b" };
work = WATCH j: Job [mode: consume, buffer: 1] RETURN j.name;
NACK #d1_1;
ACK "d1_2";
NACK #d1_3 [no_retry];
ACK #d1_3;
"""


def test_deliveries_are_printed_and_acknowledged(cli: Cli) -> None:
    done = cli("shell", ":memory:", input=CONSUMED)
    assert done.stdout.splitlines() == [
        *["defined Job", "1 created", "1 created", "handle w1_1"],
        *["work initial 0 matches", 'work consumed j.name = "a" (#d1_1)'],
        *["ok", 'work consumed j.name = "a" (#d1_2, attempt 2)'],
        *["1 deleted", 'work consumed j.name = "b" (#d1_3)', "ok"],
    ]
    assert (
        "E8004 INVALID_DELIVERY_ID: Invalid delivery ID: 'd1_3' not found or already processed" in done.stderr
    )
    assert done.exit_code == 1


def test_invalid_watch_is_underlined(cli: Cli) -> None:
    done = cli("shell", ":memory:", input="node T;\nCOMMIT WORK")
    assert done.exit_code == 1
    done = cli("shell", ":memory:", input="MATCH () RETURN 1; WATCH t: Nothing RETURN t;")
    assert "^^^^^^^ line 1, column 29" in done.stderr


def test_every_event_type_as_text() -> None:
    moment = datetime(2026, 1, 31, tzinfo=UTC)
    inner = Event(type="added", tick=1, position=1, match={"n": 1})
    window = Event(
        type="window", tick=1, position=7, window_start=moment, window_end=moment, events=(inner,), dropped=2
    )
    assert list(format_event("w", window)) == [
        "w window (2026-01-31T00:00:00.000Z … 2026-01-31T00:00:00.000Z) (2 dropped before this event)",
        "  added n = 1",
    ]
    initial = Event(type="initial", tick=0, position=1, matches=({"n": 1},))
    assert list(format_event("w", initial)) == ["w initial 1 match", "  n = 1"]


# What is offered


@pytest.fixture(scope="module")
def words() -> CompletionContext:
    with vedette.open(":memory:") as db:
        db.define(ONTOLOGY)
        return CompletionContext(
            schema=db.default.schema,
            bindings=("ada", "task"),
            databases=("default", "demo"),
            commands=(".types", ".timing", ".use"),
        )


@pytest.mark.parametrize(
    ("before", "typed", "offered"),
    [
        ("MATCH t: Ta", "Ta", ["Task"]),
        ("MATCH p: ", "", ["Being", "Person", "Task"]),
        ("MATCH t: Task WHERE t.", "", ["_type", "due", "id", "status", "title"]),
        ("MATCH t: Task WHERE t.st", "st", ["status"]),
        ("MATCH assigned_to(a, b) AS e RETURN e.s", "s", ["since", "status"]),
        ('SPAWN t: Task { title = "x", du', "du", ["due"]),
        ("SPAWN t: Task { ", "", ["due", "status", "title"]),
        ("LINK assi", "assi", ["assigned_to("]),
        ("LINK assigned_to(#t", "t", ["task"]),
        ("mat", "mat", ["MATCH"]),
        ("MATCH task: Task RETURN tas", "tas", ["task"]),
        ("MATCH t: Task ret", "ret", ["RETURN", "RETURNING"]),
        ("node Note { by: St", "St", ["String"]),
        ("no", "no", ["node", "NOT", "now("]),
        (".t", ".t", [".timing", ".types"]),
        (".use d", "d", ["default", "demo"]),
        (".types P", "P", ["Person"]),
        ("", "", []),
    ],
)
def test_completions(words: CompletionContext, before: str, typed: str, offered: list[str]) -> None:
    found, choices = completions(before, words)
    assert found == typed
    assert [each for each in choices if not each.startswith("_") or each == "_type"] == offered


# How it looks


@pytest.mark.parametrize(
    ("text", "styled"),
    [
        (
            'MATCH t: Task WHERE t.x = "a"',
            [("keyword", "MATCH"), ("type", "Task"), ("keyword", "WHERE"), ("string", '"a"')],
        ),
        ("node Task { n: Int }", [("declaration", "node"), ("type", "Int")]),
        (
            "SET #t.due = @2026-01-31 -- late",
            [
                *[("keyword", "SET"), ("reference", "#t")],
                *[("number", "@2026-01-31"), ("comment", "-- late")],
            ],
        ),
        ("TICK $n /* not\nclosed", [("keyword", "TICK"), ("reference", "$n"), ("comment", "/* not\nclosed")]),
        ('RETURN "open', [("keyword", "RETURN"), ("wrong", '"open')]),
        ("LIMIT 10 30s 1.5", [("keyword", "LIMIT"), ("number", "10"), ("number", "30s"), ("number", "1.5")]),
    ],
)
def test_highlight_keeps_the_whole_text(text: str, styled: list[tuple[str, str]]) -> None:
    found = list(highlight(text))
    assert "".join(piece for _, piece in found) == text
    assert [(style.removeprefix("class:"), piece) for style, piece in found if style] == styled

"""run, define, parse and config, and how every command fails."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import vedette
from tests.integration.cli.conftest import Cli
from tests.support.paths import DOCS

BOARD = """\
--- A board.
node Task { title: String [required], status: String = "todo", due: Timestamp?, effort: Duration? }
SPAWN t: Task { title = $title, effort = 90s }
MATCH t: Task RETURN t, t.title, t.due
"""
TABLE = """\
defined Task
1 created
+-----------------------------------------------------------------------------+---------+-------+
| t                                                                           | t.title | t.due |
+-----------------------------------------------------------------------------+---------+-------+
| Task #n1_2 {title = "write", status = "todo", due = null, effort = 90s}     | write   | null  |
+-----------------------------------------------------------------------------+---------+-------+
1 row
"""
COMMANDS = ["serve", "shell", "run", "watch", "define", "parse", "doctor", "config show"]


def squeezed(text: str) -> list[str]:
    """Lines without the widths of their columns."""
    return [" ".join(line.replace("-", "").split()) for line in text.splitlines()]


# Run


def test_run_defines_then_executes(cli: Cli, folder: Path) -> None:
    (folder / "board.mew").write_text(BOARD)
    done = cli("run", "board.mew", "--param", "title=write")
    assert done.exit_code == 0, done.stderr
    assert squeezed(done.stdout) == squeezed(TABLE)
    assert done.stderr == "data is a new data directory\n"
    with vedette.open("data") as db, db.session() as session:
        assert session.execute("MATCH t: Task RETURN t.title").rows == [("write",)]


def test_run_prints_one_json_object_per_result(cli: Cli) -> None:
    done = cli("run", "-", "--data", ":memory:", "--param", "title=x", "--json", input=BOARD)
    assert done.exit_code == 0, done.stderr
    defined, spawned, matched = map(json.loads, done.stdout.splitlines())
    assert defined == {"defined": ["Task"]}
    assert spawned["created"] == 1
    assert matched["columns"] == ["t", "t.title", "t.due"]
    assert matched["rows"][0][0]["effort"] == 90_000
    assert matched["rows"][0][1:] == ["x", None]


def test_run_stops_at_the_first_error_and_shows_its_position(cli: Cli, folder: Path) -> None:
    (folder / "a.mew").write_text('node Task { title: String [required] }\nSPAWN t: Task { title = "a" }\n')
    (folder / "b.mew").write_text("-- two\n  SPAWN t: Task\n;KILL #t\n")
    done = cli("run", "a.mew", "b.mew")
    assert done.exit_code == 1
    assert done.stdout == "defined Task\n1 created\n"
    assert "b.mew:2:3: constraint violation: E3002 REQUIRED: " in done.stderr, "the place of the statement"
    assert "Traceback" not in done.stderr


def test_an_error_in_a_statement_is_underlined_in_its_file(cli: Cli, folder: Path) -> None:
    (folder / "a.mew").write_text("node Task { title: String }\nMATCH t: Task\n  RETURN t.titel\n")
    done = cli("run", "a.mew", "--data", ":memory:")
    assert done.stderr.splitlines() == [
        "a.mew:3:10: analysis error: E2002 UNKNOWN_ATTRIBUTE: Unknown attribute 'titel' on type 'Task'",
        "   3 |   RETURN t.titel",
        "                ^^^^^^^ line 3, column 10",
    ]


def test_nothing_runs_if_a_file_has_an_error(cli: Cli, folder: Path) -> None:
    (folder / "a.mew").write_text("node Task")
    (folder / "b.mew").write_text("MATCH t: Task RETUR t\nSPAWN t Task")
    done = cli("run", "a.mew", "b.mew")
    assert done.exit_code == 1
    assert done.stdout == ""
    assert done.stderr.startswith("b.mew:1:15: parse error: E1001 ")
    assert done.stderr.count("^") == len("RETUR") + len("Task"), "both mistakes are shown"
    assert not (folder / "data").exists()


def test_run_in_another_database_and_as_an_actor(cli: Cli) -> None:
    text = 'node Person { name: String } SPAWN p: Person { name = "Ada" } RETURNING id'
    done = cli("run", "-", "--database", "team-b", "--json", input=text)
    assert "'team-b' is a new database" in done.stderr
    ada = json.loads(done.stdout.splitlines()[1])["rows"][0][0]
    done = cli("run", "-", "--database", "team-b", "--actor", ada, input="MATCH p: Person RETURN p.name")
    assert "Ada" in done.stdout
    refused = cli("run", "-", "--database", "team-b", "--actor", ada, input="node Task")
    assert "E7001" in refused.stderr
    assert "system context" in refused.stderr
    assert cli("run", "-", "--actor", "nobody", input="COMMIT").stderr.startswith("policy error: E7003")


def test_warnings_are_shown(cli: Cli) -> None:
    text = 'node T { n: Int }\nconstraint small [soft, message: "rather big"]: t: T => t.n < 10\nSPAWN t: T { n = 11 }'
    done = cli("run", "-", "--data", ":memory:", input=text)
    assert done.exit_code == 0
    assert done.stderr.startswith("warning: ")
    assert "rather big" in done.stderr


# Define


def test_define_prints_new_names(cli: Cli, folder: Path) -> None:
    (folder / "a.mew").write_text("node Task { title: String }\ntype Short = String [length: 1..9]")
    (folder / "b.mew").write_text("edge follows(a: Task, b: Task)")
    assert cli("define", "a.mew", "b.mew").stdout == "defined Task, Short\ndefined follows\n"
    assert cli("define", "a.mew").stdout == "nothing new: everything was defined before\n"
    (folder / "a.mew").write_text("node Task { title: String, due: Timestamp? }")
    assert cli("define", "a.mew").stdout == "defined Task\n"


def test_define_rejects_statements(cli: Cli, folder: Path) -> None:
    (folder / "a.mew").write_text("node Task\nSPAWN t: Task")
    done = cli("define", "a.mew")
    assert done.exit_code == 1
    assert done.stderr.startswith("a.mew:2:1: parse error: E1001 ")
    assert not (folder / "data").exists()


def test_invalid_definition_is_underlined(cli: Cli, folder: Path) -> None:
    (folder / "a.mew").write_text("\nnode Task: Work { title: String }")
    done = cli("define", "a.mew", "--data", ":memory:")
    assert done.exit_code == 1
    assert done.stderr.startswith("a.mew:2:")
    assert "Work" in done.stderr
    assert "^" in done.stderr


# Parse


def test_parse_prints_the_canonical_form(cli: Cli) -> None:
    done = cli("parse", "node Task{title:String} match t:Task return t")
    assert done.stdout.splitlines()[-1] == "MATCH t: Task RETURN t;"
    assert cli("parse", "-", input=done.stdout).stdout == done.stdout, "it is what it prints"
    assert cli("parse", "commit").stdout == "COMMIT;\n"


def test_parse_underlines_errors(cli: Cli, folder: Path) -> None:
    done = cli("parse", "match t: Task retur t")
    assert done.exit_code == 1
    assert done.stderr.splitlines()[1:] == [
        "   1 | match t: Task retur t",
        "                     ^^^^^ line 1, column 15",
    ]
    (folder / "a.mew").write_text("\nMATCH t: Task RETUR t")
    assert cli("parse", "a.mew").stderr.startswith("a.mew:2:15: parse error")


def test_parse_as_json(cli: Cli) -> None:
    record = json.loads(cli("parse", "node T\nMATCH t: T RETURN t", "--json").stdout)
    assert [part["kinds"] for part in record["parts"]] == [["NodeDeclaration"], ["Match"]]
    assert record["parts"][1] == {
        "part": "statement",
        "kinds": ["Match"],
        "line": 2,
        "column": 1,
        "text": "MATCH t: T RETURN t;",
    }
    done = cli("parse", "MATCH t: Task RETUR t", "--json")
    assert done.exit_code == 1
    (mistake,) = json.loads(done.stdout)["errors"]
    assert (mistake["code"], mistake["line"], mistake["column"], mistake["length"]) == ("E1001", 1, 15, 5)


def test_argument_that_looks_like_a_path_must_be_a_file(cli: Cli) -> None:
    done = cli("parse", "nowhere.mew")
    assert done.exit_code == 1
    assert done.stderr == "nowhere.mew cannot be read: No such file or directory. Check the path.\n"
    assert cli("parse", "MATCH t: T RETURN " + "1 + " * 2_000 + "1").exit_code == 1, (
        "too long for a path, too deep"
    )


# Config


def test_config_show_prints_the_origin_of_a_value(cli: Cli, folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "vedette.toml").write_text('tick = "manual"\nnow = "logical"\n')
    done = cli("config", "show", "--json", env={"VEDETTE_NOW": "wall", "VEDETTE_STRICT_CARDINALITY": "yes"})
    found = {record["setting"]: record for record in map(json.loads, done.stdout.splitlines())}
    assert [
        (found[n]["value"], found[n]["from"]) for n in ("tick", "now", "strict_cardinality", "durability")
    ] == [*[("manual", "file"), ("wall", "environment"), (True, "environment"), ("fsync", "default")]]
    assert "on disk" in found["durability"]["about"]
    assert "manual" in cli("config", "show").stdout
    assert not (folder / "data" / "engine.lock").exists(), "nothing was opened"


def test_invalid_setting_is_refused_with_allowed_values(cli: Cli) -> None:
    done = cli("config", "show", env={"VEDETTE_TICK": "never"})
    assert done.exit_code == 1
    assert done.stderr.startswith("settings error: E0101 ")
    assert "commit, manual" in done.stderr


# How commands fail


def test_error_for_a_directory_in_use(cli: Cli) -> None:
    with vedette.open("data"):
        done = cli("run", "-", input="MATCH () RETURN 1")
    assert done.exit_code == 1
    assert done.stderr.startswith("store error: E6002 DIRECTORY_IN_USE: ")
    assert "choose another directory" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("data", "words"), [(b"caf\xe9", "in.mew:1: this is not UTF-8 text"), (b"\n\n\xff", "in.mew:3: ")]
)
def test_binary_file_is_refused(cli: Cli, folder: Path, data: bytes, words: str) -> None:
    (folder / "in.mew").write_bytes(data)
    done = cli("run", "in.mew")
    assert done.exit_code == 1
    assert words in done.stderr


def test_control_characters_of_data_do_not_reach_the_terminal(cli: Cli) -> None:
    done = cli("run", "-", "--data", ":memory:", input='SPAWN t: T { a = "\x1b[2J" }')
    assert done.exit_code == 1
    assert "\x1b" not in done.stderr
    assert "[2J" in done.stderr


def test_internal_error_is_reported_as_a_defect(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vedette.language.parser.source_file.parse_source_file", {}.__getitem__)
    done = cli("parse", "commit work")
    assert done.exit_code == 1
    assert done.stderr.startswith("internal error: KeyError: 'commit work'\nThis is a defect in Vedette.")
    traced = cli("parse", "commit work", env={"VEDETTE_TRACEBACK": "1"})
    assert isinstance(traced.exception, KeyError)


def test_traceback_variable_prints_the_traceback(cli: Cli) -> None:
    wanted: dict[str, str | None] = {"VEDETTE_TRACEBACK": "1"}
    done = cli("run", "-", "--data", ":memory:", input="MATCH t: T RETURN t", env=wanted)
    assert isinstance(done.exception, vedette.AnalysisError)
    done = cli("shell", ":memory:", input="MATCH t: T RETURN t;", env=wanted)
    assert done.exit_code == 1
    assert "Traceback (most recent call last)" in done.stderr


def test_reference_lists_every_command_and_option(cli: Cli) -> None:
    page = (DOCS / "reference" / "cli.md").read_text()
    for command in COMMANDS:
        _, _, section = page.partition(f"\n## vedette {command}\n")
        assert section, command
        shown = set(re.findall(r"^ +(--[a-z-]+)", cli(*command.split(), "--help").stdout, re.MULTILINE))
        missing = {option for option in shown if option not in section.partition("\n## ")[0]}
        assert not missing, f"{command}: {missing}"


def test_invalid_options_exit_with_2(cli: Cli) -> None:
    done = cli("run")
    assert done.exit_code == 2
    assert "Missing argument 'FILE'" in done.stderr
    assert "Did you mean 'run'?" in cli("rum").stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(cli: Cli, command: str) -> None:
    done = cli(*command.split(), "--help")
    assert done.exit_code == 0
    assert "Examples:" in done.stdout
    assert f"vedette {command}" in done.stdout.partition("Examples:")[2]


def test_version(cli: Cli) -> None:
    shown = cli("--version").stdout
    assert shown.startswith("vedette 0.")
    program = Path(sys.executable).with_name("vedette")
    assert subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout == shown


def test_help_does_not_import_prompt_or_tables() -> None:
    code = (
        "import sys; sys.argv = ['vedette', '--help']\n"
        "from vedette.cli import main\n"
        "try: main()\n"
        "finally: print(sorted({'prompt_toolkit', 'rich.table', 'psycopg', 'pygments'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"

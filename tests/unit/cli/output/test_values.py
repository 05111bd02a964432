"""Values as text and as JSON, and the values of parameters."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import typer

from vedette.cli.output.display import TableDisplay
from vedette.cli.output.tables import ascii_table, format_summary, json_line, result_record
from vedette.cli.output.values import escape_controls, format_value
from vedette.cli.parameters import read_parameters, read_value
from vedette.engine.context.result import Result

MOMENT = datetime(2026, 1, 31, 8, 30, 0, 250_000, tzinfo=UTC)
TASK = {"id": "n1_2", "_type": "Task", "title": 'a "b"', "due": None}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (3, "3"),
        (1.5, "1.5"),
        ("plain text", "plain text"),
        ("", '""'),
        (MOMENT, "2026-01-31T08:30:00.250Z"),
        (timedelta(seconds=90), "90s"),
        (["a", 1, None], '["a", 1, null]'),
        (TASK, r'Task #n1_2 {title = "a \"b\"", due = null}'),
        ({"id": "a b", "_type": "T"}, 'T #"a b" {}'),
        ("two\nlines\x1b[31m", "two␊lines␛[31m"),
        ("\u202eback", "\ufffdback"),
    ],
)
def test_format_value(value: Any, text: str) -> None:
    assert format_value(value) == text


def test_control_characters_are_escaped() -> None:
    every = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0xD800]))
    assert escape_controls(every).isprintable()
    assert len(escape_controls(every)) == len(every), "columns stay where they are"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (MOMENT, '"2026-01-31T08:30:00.250Z"'),
        (timedelta(seconds=90), "90000"),
        ([float("nan"), float("inf"), float("-inf"), 0.5], '["NaN", "Infinity", "-Infinity", 0.5]'),
        ({"a": (MOMENT, None)}, '{"a": ["2026-01-31T08:30:00.250Z", null]}'),
        ("é\n", '"é\\n"'),
    ],
)
def test_json_line(value: Any, text: str) -> None:
    assert json_line(value) == text
    json.loads(text, parse_constant=pytest.fail)


def test_result_record_has_all_attributes() -> None:
    result = Result(columns=("t",), rows=[(TASK,)], warnings=("careful",), tick=7)
    result.created = 1
    assert result_record(result) == {
        "columns": ("t",),
        "rows": [(TASK,)],
        "created": 1,
        "modified": 0,
        "deleted": 0,
        "linked": 0,
        "unlinked": 0,
        "warnings": ("careful",),
        "handle": None,
        "tick": 7,
    }


def test_format_summary() -> None:
    result = Result()
    assert format_summary(result) == "ok"
    result.created, result.linked = 1_200, 1
    assert format_summary(result, 0.00314) == "1,200 created, 1 linked (3.1 ms)"
    assert format_summary(Result(columns=("t",), rows=[(1,)]), 2.5) == "1 row (2.50 s)"
    assert format_summary(Result(columns=("t",), handle="w1")) == "0 rows, handle w1"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-1.5", -1.5),
        ("true", True),
        ("null", None),
        ("30s", timedelta(seconds=30)),
        ("@2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ('["a", -2]', ["a", -2]),
        ('"3"', "3"),
        ("write docs", "write docs"),
        ("2026-01-31", "2026-01-31"),
        ("it's", "it's"),
        ("a = 1", "a = 1"),
        ("", ""),
    ],
)
def test_parameter_is_a_literal_or_text(text: str, value: Any) -> None:
    assert read_value(text) == value
    assert read_parameters([f"p={text}"]) == {"p": value}


@pytest.mark.parametrize("wrong", ["limit", "=3", "two words=3", "1=1"])
def test_parameter_needs_name_and_value(wrong: str) -> None:
    with pytest.raises(typer.BadParameter, match="NAME=VALUE"):
        read_parameters([wrong])


# Tables


def test_ascii_table_fits_its_content() -> None:
    rows = [("écrire", 7, None), ("書く", -12, "x" * 100)]
    assert list(ascii_table(("title", "n", "note"), rows)) == [
        f"+--------+-----+-{'-' * 100}-+",
        f"| title  |   n | note{' ' * 96} |",
        f"+--------+-----+-{'-' * 100}-+",
        f"| écrire |   7 | null{' ' * 96} |",
        f"| 書く   | -12 | {'x' * 100} |",
        f"+--------+-----+-{'-' * 100}-+",
    ]
    assert list(ascii_table(("a",), [])) == ["+---+", "| a |", "+---+", "+---+"]


def test_terminal_limits_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    display = TableDisplay()
    display.out.file = display.err.file = shown = io.StringIO()
    display.show_table(("n",), [(n,) for n in range(1_500)])
    text = shown.getvalue()
    assert "999" in text
    assert "1000" not in text
    assert "… and 500 more rows" in text

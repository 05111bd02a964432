"""Every log call of the source names its action and quotes no value."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "vedette"
LOGGERS = {"log", "_log", "_audit"}
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
VALUES = {"repr", "dict", "vars", "asdict"}
"""Calls that would write a whole record into the log."""


def log_calls() -> Iterator[tuple[str, ast.Call]]:
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in LEVELS
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id in LOGGERS
            ):
                yield f"{path.relative_to(SOURCE)}:{node.lineno}", node


CALLS = dict(log_calls())


def test_there_are_log_calls() -> None:
    assert len(CALLS) > 50


@pytest.mark.parametrize("place", CALLS)
def test_a_log_call_names_its_action(place: str) -> None:
    extra = [keyword.value for keyword in CALLS[place].keywords if keyword.arg == "extra"]
    assert extra, "give extra={'action': …} and the ids of what the line is about"
    if isinstance(extra[0], ast.Dict):
        keys = [key.value for key in extra[0].keys if isinstance(key, ast.Constant)]
        assert "action" in keys


@pytest.mark.parametrize("place", CALLS)
def test_a_log_call_passes_exceptions_whole_and_quotes_no_record(place: str) -> None:
    """The formatters redact an exception; they cannot redact a text that was made of it before."""
    parts = [*CALLS[place].args, *(k.value for k in CALLS[place].keywords if k.arg == "extra")]
    redacted = {
        inner
        for part in parts
        for node in ast.walk(part)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "redact_literals"
        for inner in ast.walk(node)
    }
    for node in (node for part in parts for node in ast.walk(part) if node not in redacted):
        assert not (isinstance(node, ast.Attribute) and node.attr in {"text", "args"}), ast.unparse(node)
        assert not (isinstance(node, ast.JoinedStr) and "error" in ast.unparse(node)), ast.unparse(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in VALUES, ast.unparse(node)
            assert ast.unparse(node) not in {"str(error)", "str(problem)"}, ast.unparse(node)

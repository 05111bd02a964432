"""The screen of `vedette serve`: short, and every command can be copied."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from vedette.cli.vedette import serve_screen
from vedette.cli.vedette.serve_screen import ScreenFacts, screen_lines

FACTS = ScreenFacts(
    data="data",
    databases=["default"],
    websocket_url="ws://127.0.0.1:7707",
    http_url="http://127.0.0.1:7708",
    requires_token=False,
)
DEMO = replace(
    FACTS,
    data="demo data",
    databases=["default", "demo"],
    demo_seconds=3.0,
    demo_folder="demo data/demo-files",
    demo_source=True,
)


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_screen, "command_path", lambda program: f".venv/bin/{program}")


def commands(facts: ScreenFacts) -> list[list[str]]:
    return [shlex.split(line) for line in screen_lines(facts) if line.startswith(("  .venv", "  curl"))]


def test_screen_without_demo() -> None:
    assert screen_lines(FACTS) == [
        "Vedette serves data (databases: default). Ctrl-C stops it.",
        "",
        "Open:",
        "  http://127.0.0.1:7708        console for statements and live tables",
        "  ws://127.0.0.1:7707          address for clients (vedette.connect)",
        "",
        "Type in a second terminal, in this folder:",
        "  .venv/bin/vedette shell data",
    ]


def test_screen_with_demo() -> None:
    assert len(screen_lines(DEMO)) <= 18, "it fits into a small terminal"
    watch, shell, events, search, source = commands(DEMO)
    place = ["--data", "demo data", "--database", "demo"]
    assert watch == [".venv/bin/vedette", "watch", "WATCH t: Task RETURN t.title, t.status", *place]
    assert shell == [".venv/bin/vedette", "shell", "demo data", "--database", "demo"]
    assert events == ["curl", "-N", "http://127.0.0.1:7708/realtime/sse?database=demo&collection=Task"]
    question = ["search", "what do we do when it rains", "--collection", "demo"]
    assert search == [".venv/bin/wqm", *question, "--data", "demo data"]
    assert source == [".venv/bin/vedette", "watch", "WATCH t: board::Task RETURN t.title, t.status", *place]


def test_only_available_commands_are_shown() -> None:
    facts = replace(DEMO, demo_folder=None, demo_source=False)
    text = "\n".join(screen_lines(facts))
    assert "wqm" not in text
    assert "Spark" not in text
    assert "searchable" not in text


def test_commands_of_a_server_with_tokens() -> None:
    (events,) = (line for line in screen_lines(replace(DEMO, requires_token=True)) if "curl" in line)
    assert events.startswith('  curl -N -H "Authorization: Bearer $TOKEN" ')

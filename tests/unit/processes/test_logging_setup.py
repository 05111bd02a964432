"""How a long-running command sets up its log."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import threading
from pathlib import Path

import pytest
import typer

from vedette.cli.errors import CommandFailed
from vedette.processes.logging_setup import (
    LogFormat,
    LogLevel,
    LogOptions,
    log_loop_exceptions,
    process_logging,
)

OURS = logging.getLogger("vedette.engine.upkeep")
THEIRS = logging.getLogger("websockets.client")
SECRET = "hunter2"
JSON = LogOptions(format=LogFormat.JSON)


def test_warnings_go_to_standard_error_and_the_rest_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    with process_logging(LogOptions(), process="engine"):
        OURS.info("quiet")
        OURS.warning("loud", extra={"action": "x"})
    OURS.warning("after the end")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].endswith("warning engine vedette.engine.upkeep: loud action=x")


def test_level_applies_to_vedette_loggers_only(capsys: pytest.CaptureFixture[str]) -> None:
    with process_logging(LogOptions(level=LogLevel.DEBUG), process="engine"):
        OURS.debug("ours")
        THEIRS.debug("> Authorization: Bearer a.b.c")
        THEIRS.warning("theirs")
    err = capsys.readouterr().err
    assert "ours" in err
    assert "theirs" in err
    assert "Bearer" not in err


def test_levels_and_handlers_are_restored() -> None:
    root, ours = logging.getLogger(), logging.getLogger("vedette")
    before = (root.level, ours.level, list(root.handlers), threading.excepthook)
    with process_logging(LogOptions(level=LogLevel.ERROR), process="engine"):
        assert (root.level, ours.level) == (logging.ERROR, logging.ERROR)
    assert (root.level, ours.level, list(root.handlers), threading.excepthook) == before


def test_options_are_passed_on_as_arguments() -> None:
    options = LogOptions(level=LogLevel.INFO, format=LogFormat.JSON)
    assert options.arguments() == ["--log-level", "info", "--log-format", "json"]


@pytest.mark.parametrize("level", list(LogLevel))
def test_the_first_line_names_version_directory_and_format(
    tmp_path: Path, level: LogLevel, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for _ in range(2):
        with process_logging(
            LogOptions(level=level, format=LogFormat.JSON), process="serve", announce=str(data)
        ):
            pass
        (data / "format").write_text("vedette data directory, format 7\n")
    new, known = map(json.loads, capsys.readouterr().err.splitlines())
    assert new["action"] == known["action"] == "process.started"
    assert new["data"] == str(data)
    assert new["version"]
    assert isinstance(new["format"], int)
    assert "(new)" in new["message"]
    assert known["format"] == 7
    assert "(new)" not in known["message"]


def test_the_first_line_shows_no_password(capsys: pytest.CaptureFixture[str]) -> None:
    with process_logging(JSON, process="serve", announce="postgresql://ann:hunter2@db.example:5432/shop"):
        pass
    line = capsys.readouterr().err
    assert json.loads(line)["data"] == "postgresql://db.example:5432/shop"
    assert SECRET not in line


def test_memory_has_no_format(capsys: pytest.CaptureFixture[str]) -> None:
    with process_logging(JSON, process="serve", announce=":memory:"):
        pass
    assert json.loads(capsys.readouterr().err)["format"] is None


def test_a_copy_gets_the_same_lines(capsys: pytest.CaptureFixture[str]) -> None:
    copy = io.StringIO()
    with process_logging(LogOptions(), process="pipeline", copy_to=copy):
        OURS.warning("loud")
    assert copy.getvalue() == capsys.readouterr().err != ""


def test_closed_stream_raises_nothing() -> None:
    copy = io.StringIO()
    copy.close()
    with process_logging(LogOptions(), process="pipeline", copy_to=copy):
        OURS.warning("loud")


def test_in_json_a_failure_is_the_last_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), process_logging(JSON, process="serve"):
        raise CommandFailed("Port 7707 is in use.")
    with pytest.raises(typer.Exit), process_logging(JSON, process="serve"):
        raise ValueError(SECRET)
    failed, broken = map(json.loads, capsys.readouterr().err.splitlines())
    assert (failed["level"], failed["message"]) == ("critical", "Port 7707 is in use.")
    assert "ValueError" in broken["exception"]
    assert SECRET not in json.dumps(broken)


def test_in_text_the_command_line_prints_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CommandFailed), process_logging(LogOptions(), process="serve"):
        raise CommandFailed("Port 7707 is in use.")
    assert capsys.readouterr().err == ""


def test_exit_is_not_logged_as_failure(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), process_logging(JSON, process="serve"):
        raise typer.Exit(3)
    assert capsys.readouterr().err == ""


def test_a_thread_that_fails_is_logged_without_the_text(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise ValueError(SECRET)

    with process_logging(JSON, process="engine"):
        thread = threading.Thread(target=fail, name="reader")
        thread.start()
        thread.join()
    line = json.loads(capsys.readouterr().err)
    assert (line["action"], line["thread_name"]) == ("process.thread_failed", "reader")
    assert "ValueError" in line["exception"]
    assert SECRET not in json.dumps(line)


def test_a_callback_that_fails_is_logged_without_the_text(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise ValueError(SECRET)

    async def main() -> None:
        log_loop_exceptions(asyncio.get_running_loop())
        asyncio.get_running_loop().call_soon(fail)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    with process_logging(JSON, process="engine"):
        asyncio.run(main())
    line = json.loads(capsys.readouterr().err)
    assert line["action"] == "process.loop_failed"
    assert SECRET not in json.dumps(line)

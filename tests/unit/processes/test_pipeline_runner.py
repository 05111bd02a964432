"""When `vedette serve` starts the pipeline, and what it logs if it cannot."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Cli
from vedette.processes import pipeline_runner as under_test
from vedette.processes.logging_setup import LogFormat, LogLevel, LogOptions
from vedette.processes.pipeline_runner import LOCK_FILE, has_sources, pipeline_spec
from vedette.storage.sqlite.lock import EngineLock


@pytest.fixture
def output() -> list[str]:
    return []


def test_pipeline_is_started_if_a_source_exists(
    folder: Path, cli: Cli, output: list[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("JAVA_HOME", "/somewhere")
    (folder / "data").mkdir()
    child = pipeline_spec("data", folder / "data", output.append, LogOptions())
    assert not child.required
    assert not child.is_needed()
    assert cli("source", "add", "graph", "data", "--name", "board").exit_code == 0
    assert has_sources(folder / "data")
    assert child.is_needed()
    assert cli("source", "remove", "board").exit_code == 0
    assert not child.is_needed()
    assert output == []


def test_missing_java_is_logged_once(
    folder: Path,
    cli: Cli,
    output: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(under_test, "_has_java", lambda: False)
    cli("source", "add", "graph", "data", "--name", "board")
    child = pipeline_spec("data", folder / "data", output.append, LogOptions())
    assert not child.is_needed()
    assert not child.is_needed()
    (record,) = [r for r in caplog.records if getattr(r, "action", "") == "pipeline.java_missing"]
    assert "Install Java 17" in record.getMessage()
    assert output == []


def test_pipeline_started_by_hand_is_not_managed(
    folder: Path, cli: Cli, output: list[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(under_test, "_has_java", lambda: True)
    cli("source", "add", "graph", "data", "--name", "board")
    child = pipeline_spec("data", folder / "data", output.append, LogOptions())
    lock = EngineLock(folder / "data" / LOCK_FILE)
    assert not child.is_needed()
    refused = cli("pipeline")
    assert refused.exit_code == 1
    assert f"A pipeline runs on data already (pid {os.getpid()})" in refused.stderr
    lock.release()
    assert child.is_needed()


def test_pipeline_counts_as_running_when_it_reports_ready(folder: Path, output: list[str]):
    child = pipeline_spec("data", folder, output.append, LogOptions())
    assert not child.is_ready(7)
    (folder / "pipeline.json").write_text('{"state": "running", "pid": 8}')
    assert not child.is_ready(7)
    assert child.is_ready(8)
    assert output == ["The pipeline is running."]


def test_child_gets_log_options_and_keeps_previous_standard_error(folder: Path, output: list[str]):
    options = LogOptions(level=LogLevel.INFO, format=LogFormat.JSON)
    child = pipeline_spec("data", folder, output.append, options)
    assert list(child.command)[-4:] == ["--log-level", "info", "--log-format", "json"]
    program = """
import sys
from pathlib import Path
from vedette.processes.pipeline_runner import redirect_output_to_log

before = redirect_output_to_log(Path())
print("out")
print("err", file=sys.stderr)
print("shown", file=before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "shown\n")
    assert sorted((folder / "pipeline.log").read_text().split()) == ["err", "out"]
    assert stat.S_IMODE((folder / "pipeline.log").stat().st_mode) == 0o600

"""When `vedette serve` starts the pipeline, and what it says when it cannot."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Cli
from vedette.processes import pipeline_runner as under_test
from vedette.processes.pipeline_runner import LOCK_FILE, has_sources, pipeline_child
from vedette.storage.sqlite.lock import EngineLock


@pytest.fixture
def said() -> list[str]:
    return []


def test_it_is_wanted_when_there_is_a_source(
    folder: Path, cli: Cli, said: list[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("JAVA_HOME", "/somewhere")
    (folder / "data").mkdir()
    child = pipeline_child("data", folder / "data", said.append)
    assert not child.vital
    assert not child.wanted()
    assert cli("source", "add", "graph", "data", "--name", "board").exit_code == 0
    assert has_sources(folder / "data")
    assert child.wanted()
    assert cli("source", "remove", "board").exit_code == 0
    assert not child.wanted()
    assert said == []


def test_without_java_it_is_said_once(
    folder: Path, cli: Cli, said: list[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(under_test, "_has_java", lambda: False)
    cli("source", "add", "graph", "data", "--name", "board")
    child = pipeline_child("data", folder / "data", said.append)
    assert not child.wanted()
    assert not child.wanted()
    (words,) = said
    assert "Install Java 17" in words


def test_one_that_was_started_by_hand_is_left_alone(
    folder: Path, cli: Cli, said: list[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(under_test, "_has_java", lambda: True)
    cli("source", "add", "graph", "data", "--name", "board")
    child = pipeline_child("data", folder / "data", said.append)
    lock = EngineLock(folder / "data" / LOCK_FILE)
    assert not child.wanted()
    refused = cli("pipeline")
    assert refused.exit_code == 1
    assert f"A pipeline runs on data already (pid {os.getpid()})" in refused.stderr
    lock.release()
    assert child.wanted()


def test_it_is_at_work_when_it_says_so(folder: Path, said: list[str]):
    child = pipeline_child("data", folder, said.append)
    assert not child.is_ready(7)
    (folder / "pipeline.json").write_text('{"state": "running", "pid": 8}')
    assert not child.is_ready(7)
    assert child.is_ready(8)
    assert said == ["The pipeline is at work."]

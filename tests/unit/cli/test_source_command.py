"""`vedette source`: what a person types and sees."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from vedette.cli.app import app
from vedette.sources.journal import open_journal
from vedette.sources.records import Quarantined


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["source", *arguments])
    assert result.exit_code == code, result.output
    return result.output


def test_add_list_pause_status_remove(tmp_path: Path):
    data = ("--data", str(tmp_path))
    run("add", "mongodb", "mongodb://me:secret@host/shop", "--name", "shop", "--partitions", "2", *data)
    (record,) = map(json.loads, run("list", "--json", *data).splitlines())
    assert record == {
        "name": "shop",
        "kind": "mongodb",
        "address": "mongodb://me@host/shop",
        "database": "default",
        "state": "live",
    }
    run("pause", "shop", *data)
    assert "paused" in run("list", *data)
    run("resume", "shop", *data)
    journal = open_journal(tmp_path)
    journal.mark("shop", "stale", "the log was cut")
    journal.quarantine(Quarantined(source="shop", event_id="e", reason="no object", excerpt="[]", time_ms=1))
    journal.close()
    told = run("status", "shop", *data)
    assert "the log was cut" in told
    assert "no object" in told
    run("remove", "shop", *data)
    assert "none" in run("list", *data)


def test_mistakes_are_sentences(tmp_path: Path):
    data = ("--data", str(tmp_path))
    assert "E6103" in run("status", "nothing", *data, code=1)
    assert "E6101" in run("add", "oracle", "x", "--name", "y", *data, code=1)
    assert "KEY=VALUE" in run("add", "graph", "x", "--name", "y", "--option", "odd", *data, code=1)
    assert "keeps no sources" in run("list", "--data", ":memory:", code=1)

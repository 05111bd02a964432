"""`vedette source`: what a person types and sees."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner

from vedette.cli.vedette import app
from vedette.clock import SystemClock
from vedette.errors import SourceError
from vedette.handshake.tables.settings import open_handshake_tables
from vedette.handshake.tables.source_health import StoredSourceHealth
from vedette.sources.journal.seam import open_journal
from vedette.sources.records import QuarantinedChange, Source


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
        "state": "unread",
        "problem": "",
    }
    assert "unread" in run("status", "shop", *data)
    run("pause", "shop", *data)
    assert "paused" in run("list", *data)
    run("resume", "shop", *data)
    journal = open_journal(tmp_path)
    journal.set_state("shop", "stale", "the log was cut")
    journal.quarantine(
        QuarantinedChange(source="shop", event_id="e", reason="no object", excerpt="[]", time_ms=1)
    )
    journal.close()
    told = run("status", "shop", *data)
    assert "the log was cut" in told
    assert "no object" in told
    run("remove", "shop", *data)
    assert "None" in run("list", *data)


def test_postgres_needs_no_pymongo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pymongo", None)
    data = ("--data", str(tmp_path))
    printed = run("add", "postgres", "postgresql://localhost/shop", "--name", "shop", *data)
    assert "pip install 'vedette[pipeline]'" in printed
    assert "E0102" in run("add", "mongodb", "mongodb://localhost/shop", "--name", "other", *data, code=1)


def test_last_error_of_a_source_is_shown(tmp_path: Path):
    """Whoever has a typing mistake in the address must not be told that it is live."""
    data = ("--data", str(tmp_path))
    address = "postgresql://me:secret@nowhere/shop?password=other"
    run("add", "postgres", address, "--name", "shop", *data)
    tables = open_handshake_tables(tmp_path, SystemClock())
    source = Source(name="shop", kind="postgres", address=address)
    care = StoredSourceHealth(source, tables, SystemClock(), Random(1))
    care.record_failure(SourceError("E6104", "nowhere does not answer"))
    told = run("list", *data) + run("status", "shop", *data)
    assert told.count("nowhere does not answer") == 2
    assert "secret" not in told
    assert "password=***" in told
    care.record_success()
    tables.close()
    assert "does not answer" not in run("list", *data)


def test_sources_use_the_store_of_the_pipeline(tmp_path: Path):
    """A setting says that the journal is elsewhere: then a source in the directory would be read by nobody."""
    (tmp_path / "vedette.toml").write_text('pipeline_store = "postgresql://nobody@/x?host=/nowhere"\n')
    told = run("add", "graph", "x", "--name", "board", "--data", str(tmp_path), code=1)
    assert "/nowhere" in told


@pytest.mark.parametrize(
    ("kind", "address"),
    [
        ("mongodb", "localhost/shop"),
        ("mongodb", "mongodb://"),
        ("postgres", "not an address"),
        ("postgres", "http://x"),
    ],
)
def test_invalid_address_is_refused(tmp_path: Path, kind: str, address: str):
    told = run("add", kind, address, "--name", "shop", "--data", str(tmp_path), code=1)
    assert "E6101" in told


def test_errors_are_sentences(tmp_path: Path):
    data = ("--data", str(tmp_path))
    assert "E6103" in run("status", "nothing", *data, code=1)
    assert "E6101" in run("add", "oracle", "x", "--name", "y", *data, code=1)
    assert "KEY=VALUE" in run("add", "graph", "x", "--name", "y", "--option", "odd", *data, code=1)
    assert "has no sources" in run("list", "--data", ":memory:", code=1)

"""The change log of the graph as a source, read beside a running engine."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from itertools import count
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any

import psycopg
import pytest

import vedette
from vedette.clock import SystemClock
from vedette.errors import SourceError
from vedette.sources.graph.reader import GraphLogReader, decode_token, encode_token
from vedette.sources.images import decode_image, encode_image
from vedette.sources.journal.seam import open_journal
from vedette.sources.reader import ExponentialBackoff
from vedette.sources.reader_loop import run_reader
from vedette.sources.reader_supervisor import ReaderSupervisor
from vedette.sources.records import Source, SourceEvent
from vedette.sources.source_options import validate_source

_NUMBERS = count()


def graph_file(data_directory: Path) -> Path:
    (found,) = [
        path for path in data_directory.rglob("*") if path.is_file() and b"SQLite" in path.read_bytes()[:16]
    ]
    return found


@pytest.fixture(params=["sqlite", "postgres"])
def data_directory(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The stores that a graph can have."""
    if request.param == "sqlite":
        return str(tmp_path / "data")
    server: str = request.getfixturevalue("postgres_url")
    name = f"graph_{next(_NUMBERS)}"
    with psycopg.connect(server, autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name}")
    return server.replace("/postgres?", f"/{name}?")


def test_commits_of_the_engine_reach_the_journal(data_directory: str, tmp_path: Path):
    journal = open_journal(tmp_path)
    with vedette.open(data_directory) as db:
        db.define("node Task { title: String, n: Int = 0 }")
        with db.session() as s:
            s.execute('SPAWN t: Task { title = "before" }')
            source = Source(name="board", kind="graph", address=data_directory)
            journal.add_source(source)
            reader = GraphLogReader(source, journal, SystemClock())
            reader.start(scan=True)
            s.execute('SPAWN t: Task { title = "after" }')
            s.execute('MATCH t: Task WHERE t.title = "before" SET t.n = 5')
            s.execute('MATCH t: Task WHERE t.title = "after" KILL t')
            while reader.poll(0)[
                0
            ]:  # acknowledged commits are read, whether or not they are in the tables yet
                pass
    rows = journal.read(0, journal.last_offset())
    found = [
        (row.op, row.before and decode_image(row.before), row.after and decode_image(row.after))
        for row in rows
    ]
    assert [(op, b and (b["title"], b["n"]), a and (a["title"], a["n"])) for op, b, a in found] == [
        ("create", None, ("before", 0)),
        ("create", None, ("after", 0)),
        ("update", ("before", 0), ("before", 5)),
        ("delete", ("after", 0), None),
    ]
    reader.close()
    journal.close()


def test_deletions_during_a_gap_are_reported(data_directory: str, tmp_path: Path):
    """Also if no node of the type is left."""
    journal = open_journal(tmp_path)
    source = Source(name="board", kind="graph", address=data_directory)
    journal.add_source(source)
    with vedette.open(data_directory) as db, db.session() as s:
        db.define("node Task { title: String }\nnode Note { text: String }")
        s.run('SPAWN t: Task { title = "a" }; SPAWN t: Task { title = "b" }; SPAWN n: Note { text = "c" }')
    reader = GraphLogReader(source, journal, SystemClock())
    reader.start(scan=True)
    last = journal.last_offset()
    with vedette.open(data_directory) as db, db.session() as s:
        s.run('MATCH t: Task WHERE t.title = "a" KILL t; MATCH n: Note KILL n')
    reader.start(scan=True)
    rows = journal.read(last, journal.last_offset())
    assert sorted((row.op, row.collection) for row in rows) == [("delete", "Note"), ("delete", "Task")]
    reader.close()
    journal.close()


def test_completely_trimmed_log_is_not_a_gap(tmp_path: Path):
    """All changes are older than the retention and were trimmed, and no change followed."""
    data_directory = tmp_path / "data"
    with vedette.open(data_directory) as db, db.session() as s:
        db.define("node Task { title: String }")
        s.execute('SPAWN t: Task { title = "a" }')
    with closing(sqlite3.connect(graph_file(data_directory), isolation_level=None)) as file:
        file.execute(
            "UPDATE meta SET value = (SELECT max(\"offset\") + 1 FROM journal) WHERE key = 'store.first'"
        )
        file.execute("DELETE FROM journal")
    journal = open_journal(tmp_path)
    source = Source(name="board", kind="graph", address=str(data_directory))
    journal.add_source(source)
    reader = GraphLogReader(source, journal, SystemClock())
    reader.start(scan=True)
    assert reader.poll(0) == (0, 0)
    reader.close()
    journal.close()


def test_missing_graph_is_refused(data_directory: str, tmp_path: Path):
    journal = open_journal(tmp_path)
    source = Source(name="board", kind="graph", address=data_directory)
    journal.add_source(source)
    with (
        pytest.raises(SourceError) as caught,
        closing(GraphLogReader(source, journal, SystemClock())) as reader,
    ):
        reader.start(scan=True)
    assert caught.value.code == "E6104"
    journal.close()


def test_database_has_one_graph_source():
    """Types of a graph have no source prefix, so the types of two graphs would be one collection."""
    one, two = (Source(name=name, kind="graph", address=name) for name in ("one", "two"))
    with pytest.raises(SourceError, match="already has the graph source one"):
        validate_source(two, [one])
    validate_source(Source(name="two", kind="graph", address="two", tenant="other"), [one])
    validate_source(Source(name="two", kind="postgres", address="postgresql://two"), [one])


# --- reader loop


class Scripted:
    """A reader with a script: each poll returns a number of events or raises an error."""

    def __init__(self, journal: Any, *script: int | SourceError) -> None:
        self._journal, self._script = journal, list(script)
        self.started: list[bool] = []
        self.released = False
        self.stop = Flag()

    def start(self, *, scan: bool) -> None:
        self.started.append(scan)
        self._journal.append("x", [], "token")

    def poll(self, seconds: float) -> tuple[int, int]:
        if not self._script:
            self.stop.set()
            return 0, 0
        step = self._script.pop(0)
        if isinstance(step, SourceError):
            raise step
        return step, step

    def release_server_resources(self) -> None:
        self.released = True

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("options", "started", "epochs"),
    [
        ({}, [True, True], "same"),
        ({"on_gap": "resync"}, [True, True], "new"),
        ({"on_gap": "resync", "start": "now"}, [False, False], "new"),
    ],
)
def test_lost_position_is_recovered_by_scan_or_resync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], started: list[bool], epochs: str
):
    monkeypatch.setattr("vedette.sources.reader.FIRST_RETRY_SECONDS", 0.001)
    journal = open_journal(tmp_path)
    source = Source(name="x", kind="mongodb", address="", options=options)
    journal.add_source(source)
    before = {p.epoch for p in journal.partitions()}
    states: list[str] = []
    mark = journal.set_state

    def noting(name: str, state: Any, *more: Any, **others: Any) -> None:
        states.append(state)
        mark(name, state, *more, **others)

    monkeypatch.setattr(journal, "set_state", noting)
    known = SourceEvent(event_id="1", collection="x::c", key="k", after=encode_image({}), time_ms=0)
    journal.append("x", [known], None)
    reader = Scripted(journal, 1, SourceError("E6104", "away"), SourceError("E6105", "lost"), 2)
    run_reader(reader, journal, source, reader.stop, SystemClock(), ExponentialBackoff(random.Random(1)))
    assert reader.started == started
    assert states[:2] == ["catching-up", "live"]
    scanned = started[-1]
    assert states[2:] == (["stale", "catching-up", "live"] if scanned else ["stale", "live"])
    assert bool(journal.image_keys("x", "x::c")) is scanned, "images that were not compared are deleted"
    assert ({p.epoch for p in journal.partitions()} == before) is (epochs == "same")
    journal.close()


def test_paused_source_is_not_read_and_removed_source_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("vedette.sources.reader_loop.POLL_SECONDS", 0.001)
    journal = open_journal(tmp_path)
    source = Source(name="x", kind="mongodb", address="")
    journal.add_source(source)
    journal.set_paused("x", True)
    reader = Scripted(journal)
    thread = Thread(
        target=run_reader,
        args=(reader, journal, source, reader.stop, SystemClock(), ExponentialBackoff(random.Random(1))),
    )
    thread.start()
    assert reader.started == []
    journal.remove_source("x")
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert reader.started == []
    assert reader.released, "also while the reader is recovering from a gap"
    journal.close()


def test_supervisor_follows_the_list_of_sources(tmp_path: Path):
    data_directory = tmp_path / "data"
    with vedette.open(data_directory) as db:
        db.define("node Task { title: String }")
        with db.session() as s:
            s.execute('SPAWN t: Task { title = "x" }')
    journal = open_journal(tmp_path)
    supervisor = ReaderSupervisor(journal.address, SystemClock(), random.Random(1))
    supervisor.reconcile()
    journal.add_source(Source(name="board", kind="graph", address=str(graph_file(data_directory))))
    supervisor.reconcile()
    assert journal.wait_for_append(0, 30.0) > 0
    supervisor.close()
    journal.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "a b"}, "is not a valid name"),
        ({"name": "_x"}, "is not a valid name"),
        ({"kind": "oracle"}, "known kinds are mongodb, postgres, graph"),
        ({"partitions": 0}, "1 to 256"),
        ({"options": {"tables": "x"}}, "has no option 'tables'"),
        ({"options": {"start": "yesterday"}}, "beginning or now"),
    ],
)
def test_invalid_source_is_refused(change: dict[str, Any], message: str):
    values = {"name": "shop", "kind": "mongodb", "address": "mongodb://x"}
    with pytest.raises(SourceError, match=message) as caught:
        validate_source(Source(**(values | change)))
    assert caught.value.code == "E6101"


def test_token_format_is_pinned():
    """A change of this text needs a new TOKEN_VERSION."""
    assert encode_token(1_767_323_045_000, 42) == '{"version": 2, "epoch": 1767323045000, "offset": 42}'
    assert decode_token(encode_token(5, 42)) == (5, 42)


def test_token_of_another_version_is_ignored():
    assert decode_token("1767323045000:42") == decode_token(None) == (0, 0)

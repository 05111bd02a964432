"""Databases of one data directory are independent, and one engine at a time opens the directory."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import vedette
from tests.support.databases import all_at_once
from tests.support.faulty_disk import fresh_database
from tests.support.paths import ROOT
from tests.support.waiting import TIMEOUT_SECONDS
from vedette.engine.data_directory import Vedette
from vedette.engine.database import Database
from vedette.errors import StoreError, VedetteError
from vedette.graph.graph import Graph

HOLDER = """
import sys, vedette
db = vedette.open(sys.argv[1])
db.define("node Task { title: String }")
db.session().execute('SPAWN t: Task { title = "held" }')
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "memory":
        yield ":memory:"
    elif request.param == "sqlite":
        yield str(tmp_path / "data")
    else:
        with fresh_database(request.getfixturevalue("postgres_url")) as url:
            yield url


@pytest.fixture
def db(location: str) -> Iterator[Vedette]:
    with vedette.open(location) as db:
        yield db


def titles(database: Database | Vedette) -> list[Any]:
    with database.session() as session:
        return sorted(session.execute("MATCH t: Task RETURN t.title").rows)


def error_of(work: Any) -> VedetteError:
    with pytest.raises(VedetteError) as caught:
        work()
    return caught.value


# Databases


def test_databases_are_independent(db: Vedette) -> None:
    one, two = db.database("one"), db.database("two")
    one.define("node Task { title: String [unique] }")
    two.define("node Task { title: Int } node Extra {}")
    for _ in range(3):
        two.session().execute("SPAWN t: Task { title = 7 }")
    ((id,),) = one.session().execute('SPAWN t: Task { title = "a" } RETURNING id').rows
    assert titles(one) == [("a",)]
    assert titles(two) == [(7,)] * 3
    assert (one.state.tick, two.state.tick, db.default.state.tick) == (1, 3, 0), "ticks"
    assert error_of(lambda: titles(db)).code == "E2001", "ontology"
    assert error_of(lambda: one.session().execute("MATCH e: Extra RETURN e")).code == "E2001"
    two.session().execute("MATCH t: Task KILL t")
    assert one.session().execute(f'INSPECT #"{id}"').rows[0][0] is True
    assert len(one.sessions) == len({s.id for s in one.sessions.values()})
    session = one.session()
    session.run('BEGIN; SPAWN t: Task { title = "mine" }')
    assert two.session().transaction is None, "sessions"
    two.define("node More {}")
    session.execute("COMMIT")  # a definition in another database aborts no transaction here


def test_errors_name_their_database_only(db: Vedette) -> None:
    one, two = db.database("one"), db.database("two")
    for database in (one, two):
        database.define("node Task { title: String [unique] }")
    one.close()
    error = error_of(lambda: one.define("node A {}"))
    assert error.code == "E6005"
    assert "'one'" in error.text
    two.session().execute('SPAWN t: Task { title = "goes on" }')


def test_same_name_returns_the_same_database(db: Vedette) -> None:
    assert db.database("one") is db.database("one")
    assert db.database("default") is db.default
    found = all_at_once(*[lambda: db.database("many")] * 8)
    assert len(set(map(id, found))) == 1
    assert db.databases() == ["default", "many", "one"]


ODD = [
    "tenant-b",
    "Tenant-B",
    "../x",
    "..",
    "a/b\\c",
    "münchen ☕",
    "数据库",
    "con",
    " ",
    "a'b\"c;DROP",
    "%2e%2e",
    "-rf",
    "x" * 200,
    "\n",
]


def test_unusual_database_names(db: Vedette, location: str, tmp_path: Path) -> None:
    for number, name in enumerate(ODD):
        database = db.database(name)
        database.define("node Task { title: Int }")
        database.session().execute("SPAWN t: Task { title = $n }", n=number)
    assert sorted(db.databases()) == sorted([*ODD, "default"])
    for number, name in enumerate(ODD):
        assert titles(db.database(name)) == [(number,)]
    if location == ":memory:":
        return
    db.close()
    with vedette.open(location) as again:
        assert sorted(again.databases()) == sorted([*ODD, "default"])
        for number, name in enumerate(ODD):
            assert titles(again.database(name)) == [(number,)]
    if not location.startswith("postgres"):
        assert {path.name for path in tmp_path.iterdir()} == {"data"}, "nothing outside of the directory"
        assert {path.name for path in Path(location).iterdir()} <= {"databases", "engine.lock", "format"}


@pytest.mark.parametrize("name", ["", "x" * 201, "é" * 100, "\ud800", "a\0b"])
def test_invalid_database_names(db: Vedette, name: str) -> None:
    error = error_of(lambda: db.database(name))
    assert error.code == "E6007"
    assert "choose another name" in error.text
    assert db.databases() == ["default"]
    str(error).encode()  # printable


def test_unusable_database_does_not_affect_others(tmp_path: Path) -> None:
    with vedette.open(tmp_path) as db:
        db.database("good").define("node Task { title: String }")
        (tmp_path / "databases" / "bad.sqlite").write_text("no database")
        for _ in range(2):
            assert error_of(lambda: db.database("bad")).code == "E6004"
        assert titles(db.database("good")) == []
    with vedette.open(tmp_path) as db:
        assert titles(db.database("good")) == []


# Closing


def test_use_after_close_raises(db: Vedette, location: str) -> None:
    db.define("node Task { title: String }")
    session, database = db.session(), db.database("other")
    db.close()
    db.close()
    for work in (
        lambda: db.session(),
        lambda: db.async_session(),
        lambda: db.define("node More {}"),
        lambda: db.database("other"),
        lambda: db.database("new"),
        lambda: db.databases(),
        lambda: database.session(),
        lambda: database.define("node More {}"),
    ):
        error = error_of(work)
        assert error.code == "E6005"
        assert "open it again" in error.text
        assert location not in error.text or not location.startswith("postgres"), (
            "an address may hold a password"
        )
    assert error_of(lambda: session.execute("MATCH t: Task RETURN t")).code == "E5007"
    if location != ":memory:":
        with vedette.open(location) as again:
            assert again.databases() == ["default", "other"]


def live_graphs() -> set[int]:
    """Return the identities of the graphs that are still referenced."""
    gc.unfreeze()  # another open database may have frozen objects of a closed one
    gc.collect()
    return {id(thing) for thing in gc.get_objects() if type(thing) is Graph}


def test_close_releases_everything(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a thread nor the graph stays in memory."""
    monkeypatch.setattr(gc, "freeze", lambda: None)  # frozen objects are not listed
    before = set(threading.enumerate())
    earlier = live_graphs()
    db = vedette.open(location, environment={}, tick_interval_seconds=3_600)
    db.define("node Task { title: String }")
    session = db.session()
    session.execute('SPAWN t: Task { title = "x" }')
    database = weakref.ref(db.default)
    opened = live_graphs() - earlier
    assert opened
    db.close()
    del db, session
    assert not opened & live_graphs()
    assert database() is None
    for thread in set(threading.enumerate()) - before:
        thread.join(TIMEOUT_SECONDS)
        assert not thread.is_alive(), thread.name


def test_close_with_open_transactions(db: Vedette, location: str) -> None:
    db.define("node Task { title: String }")
    session = db.session()
    session.run('BEGIN; SPAWN t: Task { title = "never" }')
    db.close()
    if location != ":memory:":
        with vedette.open(location) as again:
            assert titles(again) == []


def test_failed_open_releases_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(
            "vedette.engine.database.load_elements", lambda *_: (_ for _ in ()).throw(MemoryError())
        )
        with pytest.raises(MemoryError):
            vedette.open(tmp_path)
    with vedette.open(tmp_path) as db:
        db.define("node Task { title: String }")


# One engine at a time


def test_second_engine_in_the_same_process_is_refused(tmp_path: Path) -> None:
    with vedette.open(tmp_path) as db:
        for place in (tmp_path, f"{tmp_path}/", os.path.relpath(tmp_path), tmp_path / "databases" / ".."):
            error = error_of(lambda place=place: vedette.open(place))
            assert error.code == "E6002"
            assert error.fields["pid"] == os.getpid()
            assert "close it first" in error.text
        db.define("node Task { title: String }")
    with vedette.open(tmp_path) as db:
        assert titles(db) == []


@contextmanager
def another_process(location: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that keeps the directory open until its input ends or it is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, location],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"open\n"
            yield process
        finally:
            if process.poll() is None:
                process.kill()


@pytest.mark.parametrize("location", ["sqlite", "postgres"], indirect=True)
def test_second_engine_in_another_process_is_refused(location: str) -> None:
    with another_process(location) as holder:
        error = error_of(lambda: vedette.open(location))
        assert error.code == "E6002"
        assert error.fields["pid"] == holder.pid
        assert str(holder.pid) in error.text
        assert "stop it" in error.text
        holder.communicate(timeout=TIMEOUT_SECONDS)  # it exits cleanly
        assert holder.returncode == 0
    with vedette.open(location) as db:
        assert titles(db) == [("held",)]


@pytest.mark.parametrize("location", ["sqlite", "postgres"], indirect=True)
def test_killed_engine_releases_its_lock(location: str) -> None:
    with another_process(location) as holder:
        assert error_of(lambda: vedette.open(location)).code == "E6002"
        holder.send_signal(signal.SIGKILL)
        assert holder.wait(TIMEOUT_SECONDS) == -signal.SIGKILL
    with vedette.open(location) as db:
        assert titles(db) == [("held",)]
        db.session().execute('SPAWN t: Task { title = "mine" }')


def test_forked_child_holds_no_lock(tmp_path: Path) -> None:
    """A program that an engine started must not keep its directory locked."""
    db = vedette.open(tmp_path)
    sleeper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    try:
        db.close()
        vedette.open(tmp_path).close()
    finally:
        sleeper.kill()
        sleeper.communicate(timeout=TIMEOUT_SECONDS)


FORKED = """
import os, signal, sys, vedette
db = vedette.open(sys.argv[1])
seen, ready = os.pipe()
child = os.fork()
if child == 0:
    {in_child}
    os.write(ready, b"x")
    signal.pause()
os.close(ready)
os.read(seen, 1)
try:
    {in_parent}
finally:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""


@pytest.mark.parametrize(
    ("in_child", "in_parent", "outcome"),
    [
        ("pass", "db.close(); vedette.open(sys.argv[1]).close()", 0),
        ("db._store_root.close()", "vedette.open(sys.argv[1])", 1),
    ],
    ids=["the parent's closing lets the next engine in", "the child's closing does not"],
)
def test_forked_copy_is_refused(tmp_path: Path, in_child: str, in_parent: str, outcome: int) -> None:
    """A forked child (multiprocessing) shares the open lock file but not the lock."""
    program = FORKED.format(in_child=in_child, in_parent=in_parent)
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    ) as process:
        _, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == outcome, errors.decode()
    assert ("E6002" in errors.decode()) == bool(outcome)


def test_valid_locations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for location in (tmp_path / "deep" / "down", "relative", "with space é"):
        with vedette.open(location) as db:
            db.define("node Task { title: String }")
    assert {path.name for path in tmp_path.iterdir()} == {"deep", "relative", "with space é"}
    with pytest.raises(StoreError):
        vedette.open("postgresql://nobody@localhost:1/nothing?connect_timeout=2")


# On a real server


@pytest.mark.parametrize("location", ["sqlite", "postgres"], indirect=True)
def test_same_result_on_every_store(location: str) -> None:
    """Commit, close, reopen, change, reopen: ids and ticks continue, and no data is lost."""
    ids: list[str] = []
    ticks: list[int] = []
    for boot in range(1, 5):
        with vedette.open(location) as db:
            assert db.default.boot == boot
            db.define("node Task { title: String [unique], n: Int = 0 } edge next(a: Task, b: Task) {}")
            session = db.session()
            for number in range(5):
                result = session.execute(
                    "SPAWN t: Task { title = $title } RETURNING id", title=f"{boot}.{number}"
                )
                ids += result.rows[0]
                assert result.tick is not None
                ticks.append(result.tick)
            session.run(
                """BEGIN; MATCH a: Task, b: Task WHERE a.title = $a AND b.title = $b LINK next(a, b);
                MATCH t: Task SET t.n = t.n + 1; COMMIT""",
                a=f"{boot}.0",
                b=f"{boot}.1",
            )
            assert len(session.execute("MATCH next(a, b) RETURN a, b").rows) == boot
            assert error_of(lambda s=session: s.execute('SPAWN t: Task { title = "1.1" }')).code == "E3003"
            db.default.state.graph.validate()
    assert len(set(ids)) == len(ids)
    assert ticks == sorted(set(ticks))
    with vedette.open(location) as db:
        found = db.session().execute("MATCH t: Task RETURN t.title, t.n ORDER BY t.title").rows
        assert found == [(f"{boot}.{n}", 5 - boot) for boot in range(1, 5) for n in range(5)]

"""After a failed write, waiting callers get the error, the write is undone, and the engine only reads."""

from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import vedette
from tests.support.databases import FULL, Disk, all_at_once, in_thread, opened_on
from tests.support.faulty_disk import as_nobody, fresh_database
from tests.support.waiting import TIMEOUT_SECONDS
from vedette.engine.data_directory import Vedette
from vedette.engine.session.session import Session
from vedette.errors import StoreError, TransactionError, VedetteError
from vedette.testing import ManualClock

ONTOLOGY = "node Task { title: String [unique], n: Int = 0, more: String? } edge after(a: Task, b: Task) {}"
SPAWN = "SPAWN t: Task { title = $title, n = $n }"


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture(params=["sqlite", "postgres"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "data")
        return
    with fresh_database(request.getfixturevalue("postgres_url")) as url:
        yield url


@pytest.fixture
def db(disk: Disk, location: str) -> Iterator[Vedette]:
    with opened_on(disk, location) as db:
        db.define(ONTOLOGY)
        yield db


def spawn(session: Session, title: str, n: int = 0) -> None:
    session.execute(SPAWN, title=title, n=n)


def titles(db: Vedette) -> list[str]:
    with db.session() as session:
        return sorted(row[0] for row in session.execute("MATCH t: Task RETURN t.title").rows)


def refused(work: Callable[[], object]) -> VedetteError:
    with pytest.raises(VedetteError) as caught:
        work()
    return caught.value


def break_one(db: Vedette, disk: Disk, error: BaseException = FULL) -> StoreError:
    """Let one write fail, then repair the disk, so that later errors are not caused by the disk."""
    disk.breaks = error
    with db.session() as session, pytest.raises(StoreError) as caught:
        spawn(session, "lost")
    disk.breaks = None
    return caught.value


# Errors and visible state


def test_failed_write_reports_to_all_waiting_sessions_and_is_undone(
    db: Vedette, disk: Disk, location: str
) -> None:
    keeper = db.session()
    spawn(keeper, "kept", 1)
    disk.hold()

    def write(number: int) -> StoreError:
        with db.session() as session, pytest.raises(StoreError) as caught:
            spawn(session, f"lost {number}")
        return caught.value

    first = in_thread(lambda: write(0))
    disk.wait_until_reached()
    rest = [in_thread(partial(write, number)) for number in range(1, 6)]
    readers = [in_thread(lambda: titles(db)) for _ in range(3)]
    disk.breaks = FULL
    disk.release()
    errors = [future.result(TIMEOUT_SECONDS) for future in [first, *rest]]
    assert {error.code for error in errors} <= {"E6001", "E6005"}
    assert errors[0].code == "E6001"
    # either they saw the lost commit and get the error, or they came later and see the kept state
    for reader in readers:
        outcome = reader.exception(TIMEOUT_SECONDS) or reader.result()
        assert outcome == ["kept"] or isinstance(outcome, StoreError)
    disk.breaks = None
    assert titles(db) == ["kept"]
    assert keeper.execute("MATCH t: Task RETURN t.title, t.n").rows == [("kept", 1)]
    db.default.state.graph.validate()
    db.close()
    with vedette.open(location) as again:
        assert titles(again) == ["kept"]
        spawn(again.session(), "lost 0")


def test_rejected_writes_state_the_remedy(db: Vedette, disk: Disk) -> None:
    spawn(db.session(), "kept")
    assert break_one(db, disk).code == "E6001"
    session = db.session()
    for work in (
        lambda: spawn(session, "more"),
        lambda: session.execute("MATCH t: Task SET t.n = 5"),
        lambda: session.execute("MATCH t: Task KILL t"),
        lambda: session.execute("TICK"),
        lambda: session.run('BEGIN; SPAWN t: Task { title = "x" }; COMMIT'),
        lambda: db.define("node Other {}"),
        lambda: asyncio.run(spawn_async(db)),
    ):
        error = refused(work)
        assert error.code == "E6005"
        assert "no space left" in error.text, "the cause"
        assert "open it again" in error.text, "what to do"
    assert not refused(lambda: spawn(session, "more")).retryable
    assert titles(db) == ["kept"]
    assert "Other" not in db.default.schema.nodes
    assert db.default.read_only is not None


class PatientClock(ManualClock):
    """The lease does not schedule itself again."""

    calls = 0

    def call_at(self, due: float, callback: Callable[[], object]) -> Any:
        self.calls += 1
        assert self.calls < 100, "the clock is asked again and again"
        return super().call_at(due, callback)


def test_lease_expiry_that_cannot_be_stored_is_not_retried(disk: Disk, tmp_path: Path) -> None:
    """The expiry cannot be stored; scheduling it for the same time again would loop forever."""
    clock = PatientClock()
    with opened_on(disk, tmp_path / "data", clock=clock) as db, db.session() as session:
        db.define(ONTOLOGY)
        spawn(session, "kept")
        handle = session.watch("WATCH t: Task [mode: consume, ack_timeout: 5s] RETURN t.title")
        assert [event.type for event in handle.poll()] == ["initial", "consumed"]
        break_one(db, disk)
        clock.calls = 0
        clock.advance(60)


async def spawn_async(db: Vedette) -> None:
    async with db.async_session() as session:
        await session.execute(SPAWN, title="x", n=0)


def test_statements_without_reads_succeed_after_a_failure(db: Vedette, disk: Disk) -> None:
    """The session saw a commit that was lost. This is reported once, not with every later statement."""
    session = db.session()
    disk.breaks = FULL
    assert refused(lambda: spawn(session, "lost")).code == "E6001"
    disk.breaks = None
    assert refused(lambda: session.execute("MATCH MATCH")).code == "E1001"
    assert refused(lambda: session.execute("SAVEPOINT a")).code == "E5004"
    assert refused(lambda: session.execute("END SESSION")).code == "E5008"
    assert session.execute("MATCH t: Task RETURN t.title").rows == []


def test_immediate_watch_that_saw_lost_writes_restarts(db: Vedette, disk: Disk) -> None:
    spawn(db.session(), "kept")
    text = "WATCH t: Task [visibility: immediate] RETURN {}"
    rows, counted = (db.session().watch(text.format(what)) for what in ("t.title", "COUNT(*) AS n"))
    writer = db.session()
    writer.execute("BEGIN")
    spawn(writer, "draft")
    types = [event.type for event in rows.poll()]
    assert types == ["initial", "added"]
    break_one(db, disk)
    assert rows.poll()[-1].matches == ({"t.title": "kept"},)
    assert counted.poll()[-1].matches == ({"n": 1},)
    writer.execute("ROLLBACK")
    assert rows.poll() == counted.poll() == []


async def execute_async(db: Vedette, text: str) -> None:
    async with db.async_session() as session:
        await session.execute(text)


@pytest.mark.parametrize("way", ["watch", "execute", "run", "async"])
def test_watch_created_on_a_lost_state_does_not_exist(db: Vedette, disk: Disk, way: str) -> None:
    """Creating a watch waits for the state that it saw. If that never becomes durable, no handle is returned."""
    kept, session = db.session().watch("WATCH t: Task RETURN t.title"), db.session()
    text = "WATCH t: Task [delivery: reliable] RETURN t.title"
    ways: dict[str, Callable[[], object]] = {
        "watch": lambda: session.watch(text),
        "execute": lambda: session.execute(text),
        "run": lambda: session.run(f"MATCH t: Task RETURN t.title; {text}"),
        "async": lambda: asyncio.run(execute_async(db, text)),
    }
    disk.breaks = FULL
    assert refused(ways[way]).code == "E6001"
    disk.breaks = None
    assert refused(ways[way]).code == "E6005", "it could not be kept"
    assert list(db.default.watching.committed_index.watches.values()) == [kept._watch]
    assert kept.status == "active"


def test_every_rejection_raises_a_new_exception(db: Vedette, disk: Disk) -> None:
    """Raising one exception object repeatedly would keep the frames of all its callers alive."""
    break_one(db, disk)
    first, second = (refused(lambda: spawn(db.session(), "x")) for _ in range(2))
    assert first is not second
    assert first.text == second.text


def test_open_transaction_is_aborted_with_a_clear_error(db: Vedette, disk: Disk) -> None:
    session = db.session()
    session.execute("BEGIN")
    spawn(session, "in a transaction")
    break_one(db, disk)
    error = refused(lambda: session.execute("MATCH t: Task RETURN t"))
    assert error.code == "E5005"
    assert "store failed" in error.text
    session.execute("ROLLBACK")
    assert session.execute("MATCH t: Task RETURN t.title").rows == []


@pytest.mark.parametrize("statement", ['SPAWN t: Task { title = "late" }', "COMMIT", "TICK", "define"])
def test_commit_waiting_for_the_lock_is_rejected_after_failure(
    db: Vedette, disk: Disk, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """The commit passed the first check before the failure and gets the lock after it."""
    spawn(db.session(), "kept")
    database, session = db.default, db.session()
    reached, go = Event(), Event()
    admit = database.admit_write

    def slow_admit() -> None:
        admit()
        reached.set()
        assert go.wait(TIMEOUT_SECONDS)

    def work() -> None:
        if statement == "define":
            db.define("node Late {}")
        else:
            session.execute(statement)

    if statement == "COMMIT":
        session.run('BEGIN; SPAWN t: Task { title = "later" }')
    with monkeypatch.context() as patch:
        patch.setattr(database, "admit_write", slow_admit)
        late = in_thread(work)
        assert reached.wait(TIMEOUT_SECONDS)
    before = len(disk.batches)
    break_one(db, disk)
    go.set()
    error = late.exception(TIMEOUT_SECONDS)
    assert isinstance(error, VedetteError)
    assert error.code in {"E6005", "E5005"}
    assert len(disk.batches) == before
    assert titles(db) == ["kept"]
    database.state.graph.validate()


# The reload


def test_reads_continue_after_reload(db: Vedette, disk: Disk) -> None:
    """Plans, ids and indexes from before must not be used with the reloaded state."""
    session = db.session()
    for number in range(20):
        spawn(session, f"t{number}", number % 4)
    join = "MATCH a: Task, b: Task WHERE a.n = b.n AND a.title = $title RETURN b.title"
    expected = sorted(session.execute(join, title="t3").rows)
    assert len(expected) == 5
    sessions = [db.session() for _ in range(30)]
    break_one(db, disk)
    assert sorted(session.execute(join, title="t3").rows) == expected
    assert session.execute("MATCH t: Task WHERE t.title = $title RETURN t.n", title="t7").rows == [(3,)]
    newer = [db.session() for _ in range(40)]
    ids = [each.id for each in [session, *sessions, *newer]]
    assert len(set(ids)) == len(ids), "two sessions share an id"
    assert len(db.default.sessions) == len(ids)


def test_writer_thread_ends_after_failure(db: Vedette, disk: Disk) -> None:
    spawn(db.session(), "kept")
    assert "vedette-flush-default" in {thread.name for thread in threading.enumerate()}
    break_one(db, disk)
    assert "vedette-flush-default" not in {thread.name for thread in threading.enumerate()}


def test_lost_definition_is_undone(db: Vedette, disk: Disk, location: str) -> None:
    spawn(db.session(), "kept")
    query = "MATCH t: Task RETURN t.title, t.due"
    disk.hold()
    work = in_thread(lambda: db.define(ONTOLOGY.replace("more: String?", "more: String?, due: Int = 7")))
    disk.wait_until_reached()
    session = db.session()
    early = in_thread(lambda: session.execute(query).rows)
    disk.breaks = FULL
    disk.release()
    assert isinstance(work.exception(TIMEOUT_SECONDS), StoreError)
    assert isinstance(early.exception(TIMEOUT_SECONDS), VedetteError)
    assert refused(lambda: db.session().execute(query)).code == "E2002"
    assert titles(db) == ["kept"]
    disk.breaks = None
    db.close()
    with vedette.open(location) as again:
        assert refused(lambda: again.session().execute(query)).code == "E2002"
        assert titles(again) == ["kept"]


def test_write_reported_as_failed_but_stored_is_shown_after_reload(
    db: Vedette, disk: Disk, location: str
) -> None:
    """The outcome was never reported, so the reload may show either; it shows the content of the disk."""
    session = db.session()
    spawn(session, "kept")
    disk.breaks_after_writing = FULL
    assert refused(lambda: spawn(session, "written after all")).code == "E6001"
    disk.breaks_after_writing = None
    assert titles(db) == ["kept", "written after all"]
    db.close()
    with vedette.open(location) as again:
        assert titles(again) == ["kept", "written after all"]


def test_unreadable_disk_refuses_reads(db: Vedette, disk: Disk, location: str) -> None:
    """No reads are answered: the state in memory may differ from the disk."""
    spawn(db.session(), "kept")
    disk.unreadable = StoreError("E6001", "the disk is gone")
    break_one(db, disk)
    for _ in range(2):
        assert isinstance(refused(lambda: titles(db)), StoreError)
    assert isinstance(refused(lambda: spawn(db.session(), "x")), StoreError)
    disk.unreadable = None
    assert isinstance(refused(lambda: titles(db)), StoreError), "it looked at what was lost"
    assert titles(db) == ["kept"], "the next one finds it loaded again"
    assert refused(lambda: spawn(db.session(), "x")).code == "E6005"
    db.close()
    with vedette.open(location) as again:
        assert titles(again) == ["kept"]


def test_unexpected_exception_in_the_store_is_a_failure(
    db: Vedette, disk: Disk, location: str, caplog: pytest.LogCaptureFixture
) -> None:
    spawn(db.session(), "kept")
    error = break_one(db, disk, RuntimeError("a bug in the store"))
    assert error.code == "E6001"
    assert error.text == "the commits were not written: RuntimeError"  # the message may quote data
    assert titles(db) == ["kept"]
    db.close()
    with vedette.open(location) as again:
        assert titles(again) == ["kept"]


def test_failure_of_one_database_does_not_affect_others(db: Vedette, disk: Disk) -> None:
    other = db.database("other")
    other.define(ONTOLOGY)
    break_one(db, disk)
    with other.session() as session:
        spawn(session, "written")
        assert len(session.execute("MATCH t: Task RETURN t").rows) == 1


def test_close_flushes_healthy_databases(tmp_path: Path, disk: Disk) -> None:
    """With `relaxed`, a commit is acknowledged before it is written. A failing database must not affect others."""
    with opened_on(disk, tmp_path, durability="relaxed") as db:
        for name in ("a", "b", "c"):
            database = db.database(name)
            database.log_writer._delay = 3_600.0  # type: ignore[attr-defined]
            database.define(ONTOLOGY)
            spawn(database.session(), name)
        db.database("a")._store.append = _fails  # type: ignore[method-assign]
        with pytest.raises(StoreError, match="no space left"):
            db.close()
        db.close()
    with vedette.open(tmp_path) as again:
        assert len(again.database("b").session().execute("MATCH t: Task RETURN t").rows) == 1
        assert len(again.database("c").session().execute("MATCH t: Task RETURN t").rows) == 1


def _fails(batch: object) -> int:
    raise FULL


def test_relaxed_writers_get_the_failure_at_their_next_statement(tmp_path: Path, disk: Disk) -> None:
    with vedette.open(tmp_path) as db:
        db.define(ONTOLOGY)
    with opened_on(disk, tmp_path, durability="relaxed") as db:
        session = db.session()
        disk.hold()
        disk.breaks = FULL
        spawn(session, "acknowledged")  # labelled: up to 50 ms earlier
        disk.wait_until_reached()
        disk.release()
        with suppress(StoreError):
            db.default.log_writer.close()  # returns after the failed flush
        assert refused(lambda: titles(db)).code == "E6001"
        assert titles(db) == []
        assert refused(lambda: spawn(session, "more")).code == "E6001", "its own last word was lost"
        assert refused(lambda: spawn(session, "more")).code == "E6005"


# Values that cannot be stored


def test_value_that_cannot_be_stored_is_rejected_early(db: Vedette, location: str) -> None:
    """The value is rejected when it is received: a failing flush would stop every session."""
    session = db.session()
    lone = "half a character \ud800"
    for work in (
        lambda: session.execute("SPAWN t: Task { title = $x }", x=lone),
        lambda: session.execute(f'SPAWN t: Task {{ title = "{lone}" }}'),
        lambda: session.execute('SPAWN t: Task { title = "\\ud800" }'),
        lambda: session.execute('SPAWN t: Task { title = "a", more = $x[0] }', x=[lone]),
        lambda: session.execute("MATCH t: Task WHERE t.title = $x RETURN t", x=lone),
        lambda: session.execute('SPAWN t: Task { title = "b", n = $x }', x=2**70),
        lambda: db.define(f'node Other {{ s: String = "{lone}" }}'),
        lambda: db.define(f"node Other {{}} -- {lone}"),
        lambda: db.define("node Other {} -- \0"),
    ):
        with suppress(VedetteError):
            work()
    assert db.default.read_only is None
    spawn(session, "a\0b \U0001f40e é")
    session.execute("MATCH t: Task SET t.n = 9223372036854775807 * 3")
    stored = titles(db)
    db.close()
    with vedette.open(location) as again:
        assert titles(again) == stored


# Real disks


@contextmanager
def limited_file_size(size: int) -> Iterator[Callable[[], None]]:
    """Limit the size of files of this process; yield a function that lifts the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def lift() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield lift
    finally:
        lift()


def test_full_disk_with_many_sessions(tmp_path: Path) -> None:
    """Waiting writers get E6001, later writers E6005.

    Every acknowledged commit is present before and after reopening.
    """
    acknowledged: list[str] = []
    codes: list[str] = []

    def write(db: Vedette, name: int) -> None:
        with db.session() as session:
            for number in range(10_000):
                try:
                    session.execute(
                        "SPAWN t: Task { title = $title, more = $pad }",
                        title=f"{name}.{number}",
                        pad="x" * 2_000,
                    )
                except StoreError as error:
                    codes.append(error.code)
                    if error.code == "E6005":
                        return
                else:
                    acknowledged.append(f"{name}.{number}")

    with limited_file_size(1_500_000) as lift:
        db = vedette.open(tmp_path / "data")
        db.define(ONTOLOGY)
        all_at_once(*(lambda name=name: write(db, name) for name in range(8)))
        assert set(codes) == {"E6001", "E6005"}
        assert codes.count("E6005") == 8
        assert len(acknowledged) > 50
        assert set(acknowledged) <= set(titles(db)), "still to be read, on the full disk"
        db.default.state.graph.validate()
        seen = titles(db)
        lift()
        assert refused(lambda: spawn(db.session(), "x")).code == "E6005", "it does not recover by itself"
        db.close()
    with vedette.open(tmp_path / "data") as again:
        assert titles(again) == seen
        spawn(again.session(), "there is room again")


def test_read_only_directory() -> None:
    with tempfile.TemporaryDirectory() as folder:  # not tmp_path: the user `nobody` may not enter it
        directory = Path(folder)
        directory.chmod(0o755)
        data = directory / "data"
        with vedette.open(data) as db:
            db.define(ONTOLOGY)
            spawn(db.session(), "kept")
        everything = [data, *data.rglob("*")]
        for path in everything:
            path.chmod(path.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH) | stat.S_IROTH)
            if path.is_dir():
                path.chmod(0o555)
        with as_nobody():
            for place in (data, directory / "new"):
                error = refused(partial(vedette.open, place))
                assert error.code == "E6003"
                assert str(place) in error.text
                assert "write" in error.text
        for path in everything:
            path.chmod(0o755)
        with vedette.open(data) as db:
            assert titles(db) == ["kept"]


def test_path_that_is_not_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        error = refused(partial(vedette.open, place))
        assert error.code == "E6003"
        assert str(tmp_path / "file") in error.text


def test_file_locked_by_another_program(tmp_path: Path) -> None:
    """The lock is held longer than the timeout: no commit, a clear error, nothing lost."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vedette.storage.sqlite.connection.BUSY_SECONDS", 0.05)
        db = vedette.open(tmp_path)
    db.define(ONTOLOGY)
    spawn(db.session(), "kept")
    shell = sqlite3.connect(tmp_path / "databases" / "default.sqlite", isolation_level=None)
    shell.execute("BEGIN IMMEDIATE")
    error = refused(lambda: spawn(db.session(), "lost"))
    assert error.code == "E6001"
    assert "locked by another program" in error.text
    shell.execute("ROLLBACK")
    shell.close()
    assert titles(db) == ["kept"]
    assert refused(lambda: spawn(db.session(), "lost")).code == "E6005"
    db.close()
    with vedette.open(tmp_path) as again:
        assert titles(again) == ["kept"]


# Invalid store contents


def tamper(path: Path, statement: str) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    assert db.execute(statement).rowcount == 1
    db.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE elements SET type = 'Unknown' WHERE type = 'Task'",
        "UPDATE elements SET attributes = '{\"title\": ' WHERE type = 'Task'",
        "UPDATE elements SET attributes = '[1, 2]' WHERE type = 'Task'",
        "UPDATE definitions SET text = 'node node node'",
        "UPDATE meta SET value = 'noon' WHERE key = 'tick'",
    ],
)
def test_inconsistent_store_is_rejected_with_its_name(tmp_path: Path, statement: str) -> None:
    with vedette.open(tmp_path) as db:
        db.define(ONTOLOGY)
        spawn(db.session(), "kept")
    tamper(tmp_path / "databases" / "default.sqlite", statement)
    for _ in range(2):
        error = refused(lambda: vedette.open(tmp_path))
        assert error.code == "E6004"
        assert "default" in error.text
        assert "backup" in error.text


def test_exit_without_close_loses_nothing(tmp_path: Path) -> None:
    """The process exits normally without closing the database."""
    program = (
        "import os, sys, vedette\n"
        "db = vedette.open(sys.argv[1])\n"
        "db.define('node Task { title: String }')\n"
        "s = db.session()\n"
        "s.execute('SPAWN t: Task { title = \"kept\" }')\n"
        "s.run('BEGIN; SPAWN t: Task { title = \"never committed\" }')\n"
        "sys.argv[2] == 'hard' and os._exit(3)\n"
    )
    for number, way in enumerate(["soft", "hard"], start=1):
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path), way],
            check=False,
            timeout=TIMEOUT_SECONDS,
            capture_output=True,
            env={**os.environ, "PYTHONPATH": str(Path(vedette.__file__).parents[1])},
        )
        assert done.returncode == (3 if way == "hard" else 0), done.stderr.decode()
        with vedette.open(tmp_path) as db:
            assert titles(db) == ["kept"] * number


def test_transaction_conflict_is_not_a_store_failure(db: Vedette) -> None:
    """A conflict is not a store failure: the database continues."""
    a, b = db.session(), db.session()
    spawn(a, "x")
    a.execute("BEGIN")
    b.execute("BEGIN")
    for session in (a, b):
        session.execute("MATCH t: Task SET t.n = t.n + 1")
    a.execute("COMMIT")
    error = refused(lambda: b.execute("COMMIT"))
    assert isinstance(error, TransactionError)
    assert (error.code, error.retryable) == ("E5002", True)
    spawn(b, "y")

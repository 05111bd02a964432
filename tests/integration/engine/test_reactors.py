"""Reactors: callbacks for the events of a durable watch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from threading import Event as Flag
from typing import Any

import pytest

import vedette
from tests.support.databases import in_thread
from tests.support.waiting import TIMEOUT_SECONDS, wait_until
from vedette.change import Event
from vedette.engine.data_directory import Vedette
from vedette.engine.session.session import Session
from vedette.errors import InvalidStatement, WatchError

ONTOLOGY = "node Task { title: String?, n: Int = 0 }"
TASKS = "WATCH t: Task [initial: none] RETURN t.title"


@pytest.fixture
def db() -> Iterator[Vedette]:
    with vedette.open(":memory:", environment={}) as db:
        db.define(ONTOLOGY)
        yield db


@pytest.fixture
def session(db: Vedette) -> Session:
    return db.session()


class Calls:
    """A callback that a test can wait for."""

    def __init__(self, then: Callable[[Event], object] = lambda event: None) -> None:
        self._queue: SimpleQueue[Event] = SimpleQueue()
        self._then = then

    def __call__(self, event: Event) -> object:
        self._queue.put(event)
        return self._then(event)

    def next(self) -> Event:
        return self._queue.get(timeout=TIMEOUT_SECONDS)

    @property
    def empty(self) -> bool:
        return self._queue.empty()


def calls_of(session: Session, name: str) -> list[tuple[Any, ...]]:
    text = "MATCH i: Invocation WHERE i.code_module = $name RETURN i.status, i.error ORDER BY i.started_at"
    return session.execute(text, name=name).rows


def test_async_function_is_awaited(db: Vedette, session: Session) -> None:
    calls = Calls()

    async def callback(event: Event) -> None:
        await asyncio.sleep(0)
        calls(event)

    db.reactor("awaited", TASKS, callback)
    session.execute('SPAWN t: Task { title = "a" }')
    assert calls.next().match == {"t.title": "a"}


def test_failing_async_function_counts_as_failed(db: Vedette, session: Session) -> None:
    async def callback(event: Event) -> None:
        raise ValueError(event.type)

    db.reactor("failing", TASKS, callback)
    session.execute("SPAWN t: Task")
    wait_until(lambda: calls_of(session, "failing") == [("failed", "ValueError: added")])


def test_name_is_used_by_one_program_at_a_time(db: Vedette, session: Session) -> None:
    first = db.reactor("one", TASKS, Calls())
    with pytest.raises(WatchError, match=r"E8010.*already running"):
        db.reactor("one", TASKS, Calls())
    first.close()
    calls = Calls()
    db.reactor("one", TASKS, calls)
    session.execute("SPAWN t: Task")
    assert calls.next().type == "added"


@pytest.mark.parametrize("text", ["WATCH t: Task RETURN t.n", "WATCH t: Task WHERE t.n = $n RETURN t.title"])
def test_position_belongs_to_its_statement(db: Vedette, text: str) -> None:
    db.reactor("placed", "WATCH t: Task WHERE t.n = $n RETURN t.title", Calls(), n=1).close()
    with pytest.raises(WatchError, match=r"E8008.*another statement.*CANCEL WATCH"):
        db.reactor("placed", text, Calls(), n=2)
    db.reactor("placed", "WATCH t: Task WHERE t.n = $n RETURN t.title", Calls(), n=1)


def test_lost_position_is_reported(db: Vedette, session: Session) -> None:
    calls = Calls()
    reactor = db.reactor("lost", TASKS, calls)
    session.execute("SPAWN t: Task")
    calls.next()
    wait_until(lambda: reactor.idle)
    session.execute(f"CANCEL WATCH #{reactor.id}")
    reactor.close()
    db.reactor("lost", TASKS, calls)
    (received,) = [error for status, error in calls_of(session, "lost") if status == "failed"]
    assert received.startswith("The position of this reactor is lost")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("WATCH t: Task [mode: consume] RETURN t", "E8009"),
        ("WATCH i: Invocation RETURN COUNT(*) AS calls", "E8009"),
        ("WATCH t: Task ON MATCH DO SPAWN u: Task", "E1101"),
        ("MATCH t: Task RETURN t", "E1101"),
    ],
)
def test_invalid_reactors_are_refused(db: Vedette, session: Session, text: str, code: str) -> None:
    with pytest.raises((WatchError, InvalidStatement), match=code):
        db.reactor("refused", text, Calls())
    active = 'MATCH w: _Watch WHERE w.status = "active" RETURN COUNT(*)'
    assert session.execute(active).rows == [(0,)]
    db.reactor("refused", TASKS, Calls())


def test_reactor_is_not_called_for_its_own_writes(db: Vedette, session: Session) -> None:
    """A reactor for failed calls that fails itself must not be called forever."""

    def fail(event: Event) -> None:
        raise RuntimeError(event.type)

    seen = Calls(fail)
    text = 'WATCH i: Invocation WHERE i.status = "failed" [initial: none] RETURN i.code_module'
    monitor = db.reactor("monitor", text, seen)
    worker = db.reactor("worker", TASKS, fail)
    session.execute("SPAWN t: Task")
    assert seen.next().match == {"i.code_module": "worker"}
    wait_until(lambda: worker.idle and monitor.idle)
    assert seen.empty
    assert len(calls_of(session, "monitor")) == 1


def test_blocking_reader_does_not_end_a_reactor() -> None:
    impatient = vedette.Settings(block_timeout_seconds=0.05)
    with vedette.open(":memory:", environment={}, settings=impatient) as db:
        db.define(ONTOLOGY)
        calls, session = Calls(), db.session()
        reactor = db.reactor("patient", TASKS, calls)
        blocking = session.watch("WATCH i: Invocation [buffer: 1, on_full: block, initial: none] RETURN i")
        session.execute("SPAWN t: Task")
        assert calls.next().type == "added"
        wait_until(lambda: blocking.poll() and reactor.idle)
        assert calls_of(session, "patient") == [("succeeded", None)]
        assert reactor.running


def test_stored_position_can_be_deleted(db: Vedette, session: Session) -> None:
    calls = Calls(lambda event: session.execute("MATCH i: Invocation KILL i"))
    reactor = db.reactor("swept", TASKS, calls)
    session.execute("SPAWN t: Task")
    calls.next()
    wait_until(lambda: reactor.idle)
    assert reactor.running


def test_interrupted_calls_are_marked(tmp_path: Path) -> None:
    with vedette.open(tmp_path, environment={}) as db:
        db.define(ONTOLOGY)
        db.reactor("cut", TASKS, Calls()).close()
        session = db.session()
        session.execute('SPAWN i: Invocation { code_module = "cut", status = "running", started_at = now() }')
    with vedette.open(tmp_path, environment={}) as db:
        db.reactor("cut", TASKS, Calls())
        ((status, error),) = calls_of(db.session(), "cut")
        assert status == "failed"
        assert error.startswith("The process ended before the call returned")


def test_close_waits_for_the_running_call(tmp_path: Path) -> None:
    """The call is not repeated when the program restarts."""
    seen: SimpleQueue[Event] = SimpleQueue()
    begun, go_on = Flag(), Flag()

    def slow(event: Event) -> None:
        seen.put(event)
        if event.type == "added":
            begun.set()
            assert go_on.wait(TIMEOUT_SECONDS)

    text = "WATCH t: Task RETURN t.title"
    db = vedette.open(tmp_path / "data", environment={})
    db.define(ONTOLOGY)
    reactor = db.reactor("mailer", text, slow)
    with db.session() as session:
        session.execute('SPAWN t: Task { title = "a" }')
    assert begun.wait(TIMEOUT_SECONDS)
    closing = in_thread(db.close)
    while reactor.running:  # until the stop request
        time.sleep(0.001)
    go_on.set()
    closing.result(TIMEOUT_SECONDS)

    with vedette.open(tmp_path / "data", environment={}) as db:
        again: SimpleQueue[Event] = SimpleQueue()
        db.reactor("mailer", text, again.put)
        with db.session() as session:
            calls = session.execute("MATCH i: Invocation RETURN i.status").rows
            session.execute('SPAWN t: Task { title = "b" }')
        assert again.get(timeout=TIMEOUT_SECONDS).match == {"t.title": "b"}
    assert calls == [("succeeded",), ("succeeded",)]

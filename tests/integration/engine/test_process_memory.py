"""The garbage collection policy: sessions create no reference cycles, so young collections find nothing."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import vedette
from tests.support.databases import FULL, Disk, in_thread, opened_on
from tests.support.waiting import TIMEOUT_SECONDS
from vedette.engine.data_directory import Vedette
from vedette.engine.process_memory import GcPolicy, collection_policy
from vedette.engine.session.session import Session
from vedette.errors import VedetteError
from vedette.queue.match_queue import MatchQueue

ONTOLOGY = """
node Task { title: String [indexed], n: Int = 0, code: Int? [unique], due: Timestamp = now() + 1h }
node Person { name: String, level: Int = 1 }
edge does(who: Person, what: Task) { share: Float = 0.5 }
edge before(a: Task, b: Task) [acyclic]
constraint small: t: Task => t.n < 1000
rule count [priority: 1]: t: Task WHERE t.n = 5 => SET t.n = 6
policy all: ON MATCH(t: Task) ALLOW IF t.n < 500
policy people: ON MATCH(p: Person) ALLOW IF true
"""


@pytest.fixture(params=[":memory:", "directory"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Vedette]:
    location = ":memory:" if request.param == ":memory:" else tmp_path
    with vedette.open(location, manage_gc=False, statement_slice=200, environment={}) as db:
        db.define(ONTOLOGY)
        with db.session() as session:
            for number in range(40):
                session.execute("SPAWN t: Task { title = $t, code = $n }", t=f"t{number}", n=number)
            session.execute('SPAWN p: Person { name = "ann" }')
        db.default.state._replan_above = 1_000_000  # plans that are replaced when the graph grows are few
        yield db


def garbage_of(work: Callable[[], object], times: int = 25) -> Counter[str]:
    """Return the objects, by type, that only a collection can free after many calls."""
    for _ in range(3):  # plans, caches and lazily created objects
        work()
    was_on, flags = gc.isenabled(), gc.get_debug()
    gc.disable()
    gc.freeze()  # earlier objects do not count
    try:
        for _ in range(times):
            work()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage)
    finally:
        gc.set_debug(flags)
        gc.garbage.clear()
        gc.unfreeze()
        if was_on:
            gc.enable()


def tried(work: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        try:
            work()
        except VedetteError:
            return
        raise AssertionError("this should have failed")

    return run


Work = Callable[[Session], object]
STATEMENTS: dict[str, str] = {
    "point read": 'MATCH t: Task WHERE t.title = "t3" RETURN t, t.due',
    "scan": "MATCH t: Task RETURN t ORDER BY t.title LIMIT 5",
    "long read": "MATCH a: Task, b: Task RETURN a.title, b.title",
    "aggregate": "MATCH t: Task RETURN t.n, COUNT(t), COLLECT(t.title)",
    "exists": "MATCH t: Task WHERE EXISTS(does(p, t)) RETURN t",
    "pattern aggregate": "MATCH p: Person RETURN p.name, COUNT(t: Task, does(p, t))",
    "path": "MATCH a: Task, b: Task, before+(a, b) RETURN a",
    "optional": "MATCH t: Task OPTIONAL MATCH does(p, t) RETURN t, p",
    "layer 0": "MATCH s: _Session RETURN s",
    "spawn": 'SPAWN t: Task { title = "x" } RETURNING id',
    "set": 'MATCH t: Task WHERE t.title = "t3" SET t.n = t.n + 1',
    "rule": 'MATCH t: Task WHERE t.title = "t4" SET t.n = 5',
    "link": 'MATCH p: Person, t: Task WHERE t.title = "t5" LINK does(p, t)',
    "unlink": "MATCH does(p, t) AS d UNLINK d",
    "kill": 'MATCH t: Task WHERE t.title = "x" KILL t',
    "tick": "TICK",
    "explain": "EXPLAIN MATCH t: Task RETURN t",
    "profile": "PROFILE MATCH t: Task RETURN t",
    "inspect": "INSPECT #nothing",
}
FAILURES: dict[str, str] = {
    "syntax": "MATCH MATCH t: Task, RETURN",
    "unknown type": "MATCH t: Nothing WHERE t.x = 1 RETURN t.y, t.z",
    "unknown attribute": "MATCH t: Task RETURN t.nope",
    "type clash": 'MATCH t: Task WHERE t.n = "text" RETURN t',
    "division": "MATCH t: Task RETURN 1 / (t.n - t.n)",
    "missing parameter": "MATCH t: Task WHERE t.n = $n RETURN t",
    "unique": 'SPAWN t: Task { title = "y", code = 1 }',
    "constraint": 'MATCH t: Task WHERE t.title = "t6" SET t.n = 2000',
    "not found": "KILL #nothing",
    "no transaction": "COMMIT",
    "two statements": "TICK; TICK",
    "not there yet": "ACK #x",
}
SCRIPTS: dict[str, str] = {
    "transaction": 'BEGIN; SPAWN t: Task { title = "x" }; MATCH t: Task WHERE t.title = "x" SET t.n = 2; COMMIT',
    "serializable": "BEGIN SERIALIZABLE; MATCH t: Task RETURN t; TICK_PLACE COMMIT".replace("TICK_PLACE", ""),
    "rollback": 'BEGIN; SPAWN t: Task { title = "x" }; ROLLBACK',
    "savepoint": 'BEGIN; SAVEPOINT a; SPAWN t: Task { title = "x" }; ROLLBACK TO a; COMMIT',
    "long read in a transaction": "BEGIN; MATCH a: Task, b: Task RETURN a.title; COMMIT",
}


def check(work: Callable[[], object]) -> None:
    found = garbage_of(work)
    assert not found, dict(found)


def test_cycle_detection_works() -> None:
    def tie() -> None:
        knot: list[object] = []
        knot.append(knot)

    assert garbage_of(tie) == {"builtins.list": 25}
    assert garbage_of(lambda: [[]]) == {}


@pytest.mark.parametrize("name", STATEMENTS)
def test_statements_create_no_cycles(db: Vedette, name: str) -> None:
    session = db.session()
    check(lambda: session.execute(STATEMENTS[name]))


@pytest.mark.parametrize("name", SCRIPTS)
def test_transactions_create_no_cycles(db: Vedette, name: str) -> None:
    session = db.session()
    check(lambda: session.run(SCRIPTS[name]))


@pytest.mark.parametrize("name", FAILURES)
def test_errors_create_no_cycles(db: Vedette, name: str) -> None:
    session = db.session()
    check(tried(lambda: session.execute(FAILURES[name])))


def test_new_texts_create_no_cycles(db: Vedette) -> None:
    """Parsed, resolved, planned and compiled each time; the caches are limited by size."""
    session = db.session()
    numbers = iter(range(10_000))
    check(lambda: session.execute(f"MATCH t{next(numbers)}: Task WHERE t.n > 5 RETURN 1".replace("t.n", "1")))


def test_conflicts_and_aborts_create_no_cycles(db: Vedette) -> None:
    first, second = db.session(), db.session()

    def conflict() -> None:
        for session in (first, second):
            session.execute("BEGIN SERIALIZABLE")
            session.execute('MATCH t: Task WHERE t.title = "t7" SET t.n = t.n + 1')
        first.execute("COMMIT")
        tried(lambda: second.execute("COMMIT"))()

    def aborted() -> None:
        first.execute("BEGIN")
        tried(lambda: first.execute("MATCH t: Nothing RETURN t"))()
        tried(lambda: first.execute("MATCH t: Task RETURN t"))()
        tried(lambda: first.execute("COMMIT"))()

    check(conflict)
    check(aborted)


def test_sessions_create_no_cycles(db: Vedette) -> None:
    ((ann,),) = db.session().execute("MATCH p: Person RETURN p.id").rows

    def come_and_go() -> None:
        with db.session(ann) as session:
            session.execute("MATCH t: Task RETURN t")
            tried(lambda: session.execute('SPAWN t: Task { title = "denied" }'))()
        tried(lambda: db.session("nobody"))()

    check(come_and_go)


def test_definitions_create_no_cycles(db: Vedette) -> None:
    check(lambda: db.define(ONTOLOGY))
    check(tried(lambda: db.define("node Task { title: Int }")))
    check(tried(lambda: db.define("node {")))


def test_asyncio_sessions_create_no_cycles(db: Vedette) -> None:
    loop = asyncio.new_event_loop()

    async def one() -> None:
        async with db.async_session() as session:
            await session.execute('SPAWN t: Task { title = "x" }')
            await session.execute("MATCH t: Task RETURN COUNT(t)")
            try:
                await session.execute("MATCH t: Nothing RETURN t")
            except VedetteError:
                return

    try:
        check(lambda: loop.run_until_complete(one()))
    finally:
        loop.close()


def test_failed_flushes_create_no_cycles(tmp_path: Path) -> None:
    """Rare, but garbage must not slow down a service with failures."""
    disk = Disk()
    with opened_on(disk, tmp_path, manage_gc=False) as db:
        db.define("node Task { title: String }")
        session = db.session()
        disk.breaks = FULL
        tried(lambda: session.execute('SPAWN t: Task { title = "x" }'))()
        check(tried(lambda: session.execute('SPAWN t: Task { title = "x" }')))
        check(lambda: session.execute("MATCH t: Task RETURN t"))


@pytest.mark.parametrize("ended", ["closed", "cancelled"])
def test_closed_database_frees_waiting_jobs(tmp_path: Path, ended: str) -> None:
    """Queue entries of the compiled core are not tracked by the collector, so closing a queue breaks its cycles."""
    before = pools()
    instance = vedette.open(tmp_path, manage_gc=False)
    instance.define("node Job { n: Int, at: Int = 0 }")
    session = instance.session()
    for number in range(20):
        session.execute("SPAWN j: Job { n = $n }", n=number)
    statement = "WATCH j: Job [mode: consume, delivery: reliable, ordering: attribute(j.n DESC)] RETURN j.n"
    watches = [session.watch(statement) for _ in range(2)]
    for watch in watches:
        first, second = (event for event in watch.poll(3) if event.type == "consumed")
        session.execute("NACK $id [delay: 1h]", id=first.delivery_id)
        assert second.delivery_id
    assert pools() == before + 2
    if ended == "cancelled":
        for watch in watches:
            watch.cancel()
    database = weakref.ref(instance.default)
    instance.close()
    first = second = watch = watches = instance = session = None  # type: ignore[assignment]
    assert pools() == before
    assert database() is None


def pools() -> int:
    """Of this process, from any owner."""
    gc.collect()
    return sum(type(each) is MatchQueue for each in gc.get_objects())


def test_elements_are_untracked_by_the_collector(db: Vedette) -> None:
    """Values are a tuple of plain values, which the collector does not track."""
    gc.collect()
    elements = db.default.state.graph.elements.values()
    assert not any(gc.is_tracked(element.values) for element in elements)


# The policy


@pytest.fixture
def pythons_own() -> Iterator[tuple[int, int, int]]:
    """Python's initial thresholds, whatever databases are open in this process."""
    before, own = gc.get_threshold(), (700, 10, 10)
    gc.set_threshold(*own)
    yield own
    gc.set_threshold(*before)


@pytest.fixture
def policy() -> Iterator[GcPolicy]:
    policy = GcPolicy()
    before = gc.get_threshold()
    yield policy
    assert gc.get_threshold() == before
    assert policy._users == 0


def collectors() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "vedette-collect"]


def test_policy_is_active_while_a_database_is_open(
    pythons_own: tuple[int, int, int], policy: GcPolicy
) -> None:
    before = pythons_own
    threads = len(collectors())
    policy.acquire()
    engaged = gc.get_threshold()
    assert before[0] < engaged[0] < 10_000, "young collections go on, less often"
    assert engaged[1] == before[1]
    assert engaged[2] > 1_000_000
    assert gc.get_freeze_count() > 0
    assert len(collectors()) == threads + 1
    policy.acquire()
    assert gc.get_threshold() == engaged
    assert len(collectors()) == threads + 1
    policy.release()
    assert gc.get_threshold() == engaged
    policy.release()
    assert gc.get_threshold() == before
    for thread in collectors()[threads:]:
        thread.join(TIMEOUT_SECONDS)
    assert len(collectors()) == threads


def test_foreign_gc_thresholds_are_restored(policy: GcPolicy) -> None:
    before = gc.get_threshold()
    gc.set_threshold(123, 7, 9)
    try:
        policy.acquire()
        assert gc.get_threshold()[:2] == (123, 7)
        policy.release()
        assert gc.get_threshold() == (123, 7, 9)
    finally:
        gc.set_threshold(*before)


def test_full_collection_frees_frozen_objects(policy: GcPolicy) -> None:
    class Cycle:
        def __init__(self) -> None:
            self.me = self

    def count() -> int:
        return sum(type(each) is Cycle for each in gc.get_objects())

    gc.disable()
    try:
        Cycle()
        policy.acquire()  # freezes the object
        Cycle()
        policy.collect()
        gc.unfreeze()
        assert count() == 0
        policy.release()
        policy.collect()  # the thresholds were changed by others, so they are kept
    finally:
        gc.enable()


def test_open_and_close_manage_the_policy(tmp_path: Path) -> None:
    before, users = gc.get_threshold(), collection_policy._users
    first, second = vedette.open(tmp_path / "a"), vedette.open(":memory:")
    assert collection_policy._users == users + 2
    first.close()
    first.close()
    assert collection_policy._users == users + 1
    second.close()
    assert collection_policy._users == users
    assert gc.get_threshold() == before


def test_failed_open_leaves_the_policy_unchanged(tmp_path: Path) -> None:
    users = collection_policy._users
    with vedette.open(tmp_path):
        for _ in range(3):
            with pytest.raises(VedetteError):
                vedette.open(tmp_path)
        assert collection_policy._users == users + 1
    assert collection_policy._users == users


def test_manage_gc_false_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*arguments: Any) -> None:
        pytest.fail("the program's own garbage collection was touched")

    for name in ("freeze", "unfreeze", "set_threshold", "collect", "disable", "enable"):
        monkeypatch.setattr(gc, name, forbidden)
    db = vedette.open(tmp_path, manage_gc=False)
    db.define("node Task { title: String }")
    in_thread(lambda: db.session().execute('SPAWN t: Task { title = "x" }')).result(TIMEOUT_SECONDS)
    db.close()

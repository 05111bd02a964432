"""Concurrent sessions: isolation, conflicts and retries."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import vedette
from tests.support.databases import Disk, all_at_once, in_thread, opened_on
from tests.support.waiting import TIMEOUT_SECONDS
from vedette.engine.data_directory import Vedette
from vedette.engine.session.session import Session
from vedette.errors import TransactionError, VedetteError

ONTOLOGY = """
node Account { name: String [unique], balance: Int = 0 }
node Doctor { name: String [indexed], on_call: Bool = true, ward: String = "a" }
node Note { text: String, on: Doctor? }
edge covers(a: Doctor, b: Doctor) { n: Int = 0 }
edge leads(a: Doctor, b: Doctor) [acyclic]
edge owns(a: Account, b: Doctor) [b -> 0..1]
"""
ISOLATION = pytest.mark.parametrize("isolation", ["READ COMMITTED", "SERIALIZABLE"])


@pytest.fixture(params=[":memory:", "directory"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Vedette]:
    with vedette.open(request.param if request.param == ":memory:" else tmp_path) as db:
        db.define(ONTOLOGY)
        yield db


def retried(session: Session, work: Callable[[Session], None]) -> int:
    """Run a transaction until it has no conflict. Return the number of conflicts."""
    for conflicts in range(10_000):
        try:
            work(session)
        except VedetteError as error:
            if not error.retryable:
                raise
            assert session.transaction is None, "a COMMIT that was refused has rolled back"
        else:
            return conflicts
    raise AssertionError("it never got through")


# Transfers


@ISOLATION
def test_transfers_conserve_the_total(db: Vedette, isolation: str) -> None:
    accounts, threads, transfers, start = 5, 8, 25, 1_000
    setup = db.session()
    for number in range(accounts):
        setup.execute("SPAWN a: Account { name = $name, balance = $n }", name=str(number), n=start)
    over = Event()

    def transfer(session: Session, rng: random.Random) -> None:
        source, target = map(str, rng.sample(range(accounts), 2))
        amount = rng.randint(1, 50)
        session.execute(f"BEGIN {isolation}")
        if isolation == "SERIALIZABLE":  # the values that were read decide what is written
            balances = dict(session.execute("MATCH a: Account RETURN a.name, a.balance").rows)
            assert sum(balances.values()) == accounts * start, "a snapshot of a torn state"
            new = {source: balances[source] - amount, target: balances[target] + amount}
            for name, balance in new.items():
                session.execute(
                    "MATCH a: Account WHERE a.name = $name SET a.balance = $n", name=name, n=balance
                )
        else:
            for name, change in ((source, -amount), (target, amount)):
                session.execute(
                    "MATCH a: Account WHERE a.name = $name SET a.balance = a.balance + $n",
                    name=name,
                    n=change,
                )
        session.execute("COMMIT")

    def write(seed: int) -> int:
        rng = random.Random(seed)
        with db.session() as session:
            return sum(retried(session, lambda s: transfer(s, rng)) for _ in range(transfers))

    def look() -> None:
        with db.session() as session:
            while not over.is_set():
                ((total,),) = session.execute("MATCH a: Account RETURN SUM(a.balance)").rows
                assert total == accounts * start, "half a transaction was seen"

    readers = [in_thread(look) for _ in range(2)]
    try:
        all_at_once(*(lambda seed=seed: write(seed) for seed in range(threads)))
    finally:
        over.set()
    for reader in readers:
        reader.result(TIMEOUT_SECONDS)
    ((total,),) = setup.execute("MATCH a: Account RETURN SUM(a.balance)").rows
    assert total == accounts * start
    db.default.state.graph.validate()


def test_single_statements_never_conflict(db: Vedette) -> None:
    db.session().execute('SPAWN a: Account { name = "x" }')

    def add() -> None:
        with db.session() as session:
            for _ in range(40):
                session.execute("MATCH a: Account SET a.balance = a.balance + 1")

    all_at_once(*[add] * 8)
    assert db.session().execute("MATCH a: Account RETURN a.balance").rows == [(320,)]


# Write skew


@pytest.fixture
def ward(db: Vedette) -> tuple[Session, Session]:
    """Three doctors on call, and two sessions that each take one off call."""
    session = db.session()
    session.run(
        """SPAWN a: Doctor { name = "ann" }; SPAWN b: Doctor { name = "bob" };
        SPAWN c: Doctor { name = "cy", ward = "b" }; LINK covers(#a, #b) AS e"""
    )
    return db.session(), db.session()


READS = [
    pytest.param("MATCH d: Doctor WHERE d.on_call RETURN COUNT(d)", id="scan"),
    pytest.param("MATCH d: Doctor WHERE d.on_call RETURN d.name ORDER BY d.name LIMIT 1", id="limit"),
    pytest.param('MATCH d: Doctor WHERE d.name = "bob" RETURN d.on_call', id="index"),
    pytest.param("MATCH a: Doctor, b: Doctor, covers(a, b) RETURN b.on_call", id="edge"),
    pytest.param("MATCH a: Doctor WHERE EXISTS(covers(a, b) WHERE b.on_call) RETURN a", id="exists"),
    pytest.param("MATCH a: Doctor, b: Doctor, covers+(a, b) RETURN b.on_call", id="path"),
    pytest.param("INSPECT #bob", id="id"),
]


@pytest.mark.parametrize("question", READS)
def test_write_skew_is_prevented_when_serializable(
    db: Vedette, ward: tuple[Session, Session], question: str
) -> None:
    """Each session takes another doctor off call because of what it read."""
    first, second = ward
    ((bob,),) = first.execute('MATCH d: Doctor WHERE d.name = "bob" RETURN d.id').rows
    question = question.replace("#bob", f'#"{bob}"')
    first.execute("BEGIN SERIALIZABLE")
    second.execute("BEGIN SERIALIZABLE")
    first.execute(question)
    second.execute('MATCH d: Doctor WHERE d.name = "ann" RETURN d.on_call')
    first.execute('MATCH d: Doctor WHERE d.name = "ann" SET d.on_call = false')
    second.execute('MATCH d: Doctor WHERE d.name = "bob" SET d.on_call = false')
    second.execute("COMMIT")
    with pytest.raises(TransactionError) as caught:
        first.execute("COMMIT")
    assert (caught.value.code, caught.value.retryable) == ("E5002", True)
    rows = first.execute("MATCH d: Doctor WHERE d.on_call RETURN d.name").rows
    assert sorted(rows) == [("ann",), ("cy",)]


def test_write_skew_is_possible_when_read_committed(ward: tuple[Session, Session]) -> None:
    first, second = ward
    for session, name in ((first, "ann"), (second, "bob")):
        session.execute("BEGIN READ COMMITTED")
        session.execute("MATCH d: Doctor WHERE d.on_call RETURN COUNT(d)")
        session.execute("MATCH d: Doctor WHERE d.name = $name SET d.on_call = false", name=name)
    first.execute("COMMIT")
    second.execute("COMMIT")


PHANTOMS = [
    ('MATCH d: Doctor WHERE d.name = "dot" RETURN d', 'SPAWN d: Doctor { name = "dot" }'),
    ("MATCH d: Doctor RETURN COUNT(d)", 'SPAWN d: Doctor { name = "dot" }'),
    ("MATCH n: Note RETURN n", 'SPAWN n: Note { text = "first" }'),
    ('MATCH d: Doctor WHERE d.name = "cy" RETURN d', 'MATCH d: Doctor WHERE d.name = "cy" KILL d'),
    (
        'MATCH d: Doctor WHERE d.name = "dot" RETURN d',
        'MATCH d: Doctor WHERE d.name = "cy" SET d.name = "dot"',
    ),
    (
        'MATCH d: Doctor WHERE d.name = "cy" RETURN d',
        'MATCH d: Doctor WHERE d.name = "cy" SET d.name = "dot"',
    ),
    (
        'MATCH a: Doctor, b: Doctor, covers(a, b) WHERE a.name = "bob" RETURN b',
        'MATCH a: Doctor, b: Doctor WHERE a.name = "bob" AND b.name = "cy" LINK covers(a, b)',
    ),
    ("MATCH a: Doctor, b: Doctor, covers(a, b) RETURN b", "MATCH covers(a, b) AS e UNLINK e"),
    ("MATCH a: Doctor, b: Doctor, covers(a, b) AS e RETURN e.n", "MATCH covers(a, b) AS e SET e.n = 9"),
]


@pytest.mark.parametrize(("question", "change"), PHANTOMS)
def test_phantoms_conflict_when_serializable(
    ward: tuple[Session, Session], question: str, change: str
) -> None:
    first, second = ward
    first.execute("BEGIN SERIALIZABLE")
    before = first.execute(question).rows
    second.execute(change)
    assert first.execute(question).rows == before, "the snapshot stands still"
    first.execute('SPAWN n: Note { text = "because of what was read" }')
    with pytest.raises(TransactionError) as caught:
        first.execute("COMMIT")
    assert caught.value.code == "E5002"


def test_unread_changes_do_not_conflict(ward: tuple[Session, Session]) -> None:
    """Reads are recorded by index and edge, not by type, so unrelated writes do not conflict."""
    first, second = ward
    first.execute("BEGIN SERIALIZABLE")
    first.execute('MATCH d: Doctor WHERE d.name = "ann" RETURN d')
    first.execute('MATCH d: Doctor WHERE d.name = "ann" SET d.on_call = false')
    second.execute('MATCH d: Doctor WHERE d.name = "cy" SET d.on_call = false')
    second.execute('SPAWN d: Doctor { name = "dot" }')
    first.execute("COMMIT")


def test_snapshot_is_stable_and_read_committed_is_not(ward: tuple[Session, Session]) -> None:
    first, second = ward
    question = "MATCH d: Doctor RETURN d.name ORDER BY d.name"
    names = [("ann",), ("bob",), ("cy",)]
    first.execute("BEGIN SERIALIZABLE")
    second.execute("BEGIN READ COMMITTED")
    other = first.database.session()
    other.execute('SPAWN d: Doctor { name = "dot" }')
    assert first.execute(question).rows == names
    assert second.execute(question).rows == [*names, ("dot",)]
    first.execute("COMMIT")
    second.execute("COMMIT")


# Combined writes

TOGETHER: list[tuple[str, str, set[str]]] = [
    ('SPAWN a: Account { name = "x" }', 'SPAWN a: Account { name = "x" }', {"E3003"}),
    ('MATCH d: Doctor WHERE d.name = "ann" KILL d', "MATCH d: Doctor SET d.on_call = false", {"E5002"}),
    ("MATCH d: Doctor SET d.on_call = false", 'MATCH d: Doctor WHERE d.name = "ann" KILL d', {"E5002"}),
    ('MATCH d: Doctor WHERE d.name = "cy" KILL d', "LINK owns(SPAWN Account, #c)", {"E5002"}),
    ('SPAWN n: Note { text = "", on = #c }', 'MATCH d: Doctor WHERE d.name = "cy" KILL d', set()),
    ("LINK covers(#b, #c)", 'MATCH d: Doctor WHERE d.name = "cy" KILL d', {"E5002"}),
    ("LINK leads(#a, #b)", "LINK leads(#b, #a)", {"E3011"}),
    ("LINK leads(#a, #b); LINK leads(#b, #c)", "LINK leads(#c, #a)", {"E3011"}),
    ("SET #a.on_call = false", "SET #a.ward = 'z'", {"E5002"}),
    ("SET #a.on_call = false", "SET #b.on_call = false", set()),
]


@ISOLATION
@pytest.mark.parametrize(("one", "two", "codes"), TOGETHER)
def test_combined_writes_are_checked_at_commit(
    db: Vedette, ward: tuple[Session, Session], isolation: str, one: str, two: str, codes: set[str]
) -> None:
    first, second = ward
    ids = dict(first.execute("MATCH d: Doctor RETURN d.name, d.id").rows)
    values = {"a": ids["ann"], "b": ids["bob"], "c": ids["cy"]}

    def bound(script: str) -> str:
        for name, id in values.items():
            script = script.replace(f"#{name}", f'#"{id}"')
        return script.replace("'", '"').replace("SPAWN Account", 'SPAWN Account { name = "new" }')

    first.execute(f"BEGIN {isolation}")
    second.execute(f"BEGIN {isolation}")
    first.run(bound(one))
    second.run(bound(two))
    first.execute("COMMIT")
    if not codes:
        second.execute("COMMIT")
    else:
        with pytest.raises(VedetteError) as caught:
            second.execute("COMMIT")
        assert caught.value.code in codes | ({"E5002"} if isolation == "SERIALIZABLE" else set())
        assert second.transaction is None
    db.default.state.graph.validate()


# One session, several threads


def test_session_runs_one_statement_at_a_time(tmp_path: Path) -> None:
    """The second statement does not start while the first waits for the disk."""
    disk = Disk()
    with opened_on(disk, tmp_path) as db:
        db.define(ONTOLOGY)
        session = db.session()
        begun: list[str] = []
        asked = [Event(), Event()]
        own_lock, execute = session._statement_lock, session.execute_without_waiting

        class WatchedLock:
            def __enter__(self) -> None:
                next(event for event in asked if not event.is_set()).set()
                own_lock.acquire()

            def __exit__(self, *error: object) -> None:
                own_lock.release()

        def watched_execute(text: str, values: Any) -> Any:
            begun.append(text)
            return execute(text, values)

        session._statement_lock = WatchedLock()  # type: ignore[assignment]
        session.execute_without_waiting = watched_execute  # type: ignore[method-assign]
        texts = ['SPAWN a: Account { name = "x" }', "MATCH a: Account RETURN a.name"]
        disk.hold()
        first = in_thread(lambda: session.execute(texts[0]))
        disk.wait_until_reached()
        second = in_thread(lambda: session.execute(texts[1]).rows)
        assert asked[1].wait(TIMEOUT_SECONDS)
        assert begun == texts[:1]
        disk.release()
        first.result(TIMEOUT_SECONDS)
        assert second.result(TIMEOUT_SECONDS) == [("x",)]
        session._statement_lock = own_lock


def test_session_shared_by_threads(db: Vedette) -> None:
    db.session().execute('SPAWN a: Account { name = "x" }')
    with db.session() as session:

        def add(number: int) -> None:
            for step in range(20):
                session.run("BEGIN; MATCH a: Account SET a.balance = a.balance + 1; COMMIT")
                name = f"{number}.{step}"
                rows = session.run(
                    """BEGIN; SPAWN a: Account { name = $name }; SPAWN d: Doctor { name = $name };
                    LINK owns(#a, #d); MATCH owns(a, d) WHERE d.name = $name RETURN a.name; COMMIT""",
                    name=name,
                )[4].rows
                assert rows == [(name,)], "another thread's statement came in between"

        all_at_once(*(lambda number=number: add(number) for number in range(6)))
        assert session.execute('MATCH a: Account WHERE a.name = "x" RETURN a.balance').rows == [(120,)]


def test_close_waits_for_the_running_statement(tmp_path: Path) -> None:
    disk = Disk()
    with opened_on(disk, tmp_path) as db:
        db.define(ONTOLOGY)
        session = db.session()
        disk.hold()
        work = in_thread(lambda: session.execute('SPAWN a: Account { name = "x" }'))
        disk.wait_until_reached()
        closing = in_thread(session.close)
        disk.release()
        assert work.result(TIMEOUT_SECONDS).created == 1
        closing.result(TIMEOUT_SECONDS)
        with pytest.raises(TransactionError) as caught:
            session.execute("MATCH a: Account RETURN a")
        assert caught.value.code == "E5007"


def test_close_rolls_back_the_transaction(db: Vedette) -> None:
    session = db.session()
    session.run('BEGIN SERIALIZABLE; SPAWN a: Account { name = "x" }')
    assert db.default.state.snapshots
    session.close()
    session.close()
    assert not db.default.state.snapshots, "a snapshot that nobody reads costs every commit"
    assert db.session().execute("MATCH a: Account RETURN a").rows == []


def test_close_vedette_while_threads_write(tmp_path: Path) -> None:
    """Acknowledged commits are stored; later ones get a clear error."""
    db = vedette.open(tmp_path)
    db.define(ONTOLOGY)
    received: list[str] = []
    enough = Event()

    def write(name: int) -> str:
        session = db.session()
        for number in range(100_000):
            try:
                session.execute("SPAWN a: Account { name = $name }", name=f"{name}.{number}")
            except VedetteError as error:
                return error.code
            received.append(f"{name}.{number}")
            if len(received) > 50:
                enough.set()
        raise AssertionError("nobody closed it")

    works = [in_thread(partial(write, name)) for name in range(6)]
    assert enough.wait(TIMEOUT_SECONDS)
    db.close()
    assert {work.result(TIMEOUT_SECONDS) for work in works} <= {"E5007", "E6005"}
    with vedette.open(tmp_path) as again:
        found = {row[0] for row in again.session().execute("MATCH a: Account RETURN a.name").rows}
    assert found == set(received)


# Interrupted statements


@pytest.mark.plain_core
def test_internal_error_aborts_the_transaction(db: Vedette, monkeypatch: pytest.MonkeyPatch) -> None:
    """For instance Ctrl-C: a partly executed statement must not be committed."""
    session = db.session()
    for number in range(3):
        session.execute("SPAWN a: Account { name = $name }", name=str(number))
    session.execute("BEGIN")
    transaction = session.transaction
    assert transaction is not None
    update = transaction.transaction.update
    calls = 0

    def interrupted(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        update(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(
            type(transaction.transaction), "update", lambda self, *arguments: interrupted(*arguments)
        )
        with pytest.raises(KeyboardInterrupt):
            session.execute("MATCH a: Account SET a.balance = 1")
    with pytest.raises(TransactionError) as caught:
        session.execute("COMMIT")
    assert caught.value.code == "E5005"
    assert session.execute("MATCH a: Account RETURN SUM(a.balance)").rows == [(0,)]


@pytest.mark.plain_core
@pytest.mark.parametrize(
    "moment", ["while the graph changes", "before it is submitted", "after it is submitted"]
)
def test_interrupted_commit_is_complete_or_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Ctrl-C interrupts the main thread at any instruction, also inside a commit."""
    with vedette.open(tmp_path) as db:
        db.define(ONTOLOGY)
        session, other = db.session(), db.session()
        session.execute('SPAWN a: Account { name = "before" }')
        other.run('BEGIN; SPAWN a: Account { name = "open" }')
        with monkeypatch.context() as patch:
            interrupt(db, patch, moment)
            with pytest.raises(KeyboardInterrupt):
                session.run(
                    """BEGIN; SPAWN a: Account { name = "one" }; SPAWN a: Account { name = "two" };
                    SPAWN a: Account { name = "three" }; COMMIT"""
                )
        whole = moment.startswith("after")
        expected = ["before", "one", "three", "two"] if whole else ["before"]
        assert names(session) == expected
        session.execute('SPAWN a: Account { name = "next" }')
        if not whole:  # the state was reloaded, and open transactions of others are based on the old one
            with pytest.raises(TransactionError, match="interrupted") as caught:
                other.execute("COMMIT")
            assert caught.value.code == "E5005"
        db.default.state.graph.validate()
    with vedette.open(tmp_path) as again:
        assert names(again.session()) == sorted([*expected, "next"])


def interrupt(db: Vedette, patch: pytest.MonkeyPatch, moment: str) -> None:
    """Raise KeyboardInterrupt once, at this point of the next commit."""
    committed, gate = db.default.state.graph, db.default.log_writer
    add, submit = type(committed).add, gate.append

    def interrupted_add(self: Any, element: Any) -> None:
        if self is committed and element.values[0] == "two":
            raise KeyboardInterrupt
        add(self, element)

    def interrupted_submit(tick: int, commit: Any) -> None:
        if moment.startswith("after"):
            submit(tick, commit)
        raise KeyboardInterrupt

    if moment.startswith("while"):
        patch.setattr(type(committed), "add", interrupted_add)
    else:
        patch.setattr(gate, "append", interrupted_submit)


def names(session: Session) -> list[str]:
    return sorted(row[0] for row in session.execute("MATCH a: Account RETURN a.name").rows)

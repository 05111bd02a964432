"""define(): extending an ontology over existing data, atomically and durably."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import vedette
from tests.support.databases import Disk, all_at_once, in_thread, opened_on, returned_too_early
from tests.support.waiting import TIMEOUT_SECONDS
from vedette.engine.data_directory import Vedette
from vedette.errors import AnalysisError, ConstraintViolation, ParseError, VedetteError
from vedette.testing.clock import ManualClock

BASE = """
node Person { name: String [unique], age: Int? }
node Worker: Person { pay: Float = 1.5 }
node Task { title: String, status: String = "todo" }
edge does(who: Worker, what: Task) { share: Float? }
"""


@pytest.fixture(params=[":memory:", "directory"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return ":memory:" if request.param == ":memory:" else str(tmp_path / "data")


@pytest.fixture
def db(location: str) -> Iterator[Vedette]:
    with vedette.open(location, clock=ManualClock()) as db:
        db.define(BASE)
        with db.session() as session:
            session.run(
                """SPAWN a: Person { name = "ann", age = 30 }; SPAWN b: Worker { name = "bob" };
                SPAWN t: Task { title = "paint" }; SPAWN u: Task { title = "paint", status = "done" };
                LINK does(#b, #t)"""
            )
        yield db


def rows(db: Vedette, text: str) -> list[tuple[Any, ...]]:
    with db.session() as session:
        return session.execute(text).rows


def with_reopened(db: Vedette, check: Callable[[Vedette], object]) -> None:
    """Check the same after a restart."""
    check(db)
    if db.location != ":memory:":
        db.close()
        with vedette.open(db.location) as again:
            check(again)
            again.default.state.graph.validate()


def everything(db: Vedette) -> tuple[Any, ...]:
    """Everything that a refused definition could have changed."""
    state = db.default.state
    return (
        state.schema,
        state.sequence,
        state.tick,
        dict(state.graph.elements),
        dict(state.layout.attributes),
        sorted(state.graph.indexes),
        state.tables,
        db.default._store.info(),
        db.default._store.last_offset(),
    )


def refused(db: Vedette, text: str) -> VedetteError:
    """Assert that the text is refused and changes nothing."""
    before = everything(db)
    with pytest.raises(VedetteError) as caught:
        db.define(text)
    assert everything(db) == before
    return caught.value


# Extensions


def test_new_optional_attribute(db: Vedette) -> None:
    db.define(BASE.replace("age: Int?", "age: Int?, nick: String?"))
    db.session().execute('MATCH p: Person WHERE p.name = "bob" SET p.nick = "b"')
    expected = [("ann", None, 30, None), ("bob", "b", None, 1.5)]

    def check(db: Vedette) -> None:
        assert rows(db, "MATCH p: Person RETURN p.name, p.nick, p.age, p.pay ORDER BY p.name") == expected
        image = rows(db, 'MATCH p: Worker WHERE p.name = "bob" RETURN p')[0][0]
        assert image == {
            "id": image["id"],
            "_type": "Worker",
            "name": "bob",
            "age": None,
            "nick": "b",
            "pay": 1.5,
        }

    with_reopened(db, check)


def test_new_attribute_with_default_fills_existing_elements(db: Vedette) -> None:
    tick = db.default.state.tick
    db.define(
        BASE.replace(
            'status: String = "todo"', 'status: String = "todo", size: Int = 3, made: Timestamp = now()'
        )
        .replace("share: Float?", 'share: Float?, since: Timestamp = now(), kind: String = "full"')
        .replace("age: Int?", "age: Int?, level: Float = 0.5")
    )
    moment = datetime(2024, 1, 1, tzinfo=UTC)

    def check(db: Vedette) -> None:
        assert rows(db, "MATCH t: Task RETURN t.title, t.status, t.size, t.made ORDER BY t.status") == [
            ("paint", "done", 3, moment),
            ("paint", "todo", 3, moment),
        ]
        assert rows(db, "MATCH does(w, t) AS d RETURN d.since, d.kind, d.share") == [(moment, "full", None)]
        assert rows(db, "MATCH p: Person RETURN p.name, p.level, p.pay ORDER BY p.name") == [
            ("ann", 0.5, None),
            ("bob", 0.5, 1.5),
        ]
        assert db.default.state.tick == tick + 1, "the filling is a commit like any other"

    with_reopened(db, check)


def test_journal_contains_filled_defaults(db: Vedette) -> None:
    if db.location == ":memory:":
        return  # memory has no journal
    store = db.default._store
    last = store.last_offset()
    db.define(BASE.replace('status: String = "todo"', 'status: String = "todo", size: Int = 3'))
    found = [
        (row.collection, b'"size":null' in (row.before or b""), b'"size":3' in (row.after or b""))
        for row in store.read(last, 99)
    ]
    assert found == [("Task", True, True)] * 2


def test_attributes_added_in_several_definitions(db: Vedette) -> None:
    """Attributes are added to a parent after a child, and again; every element keeps its values."""
    steps = [
        ("age: Int?", "age: Int?, b: Int = 1"),
        ("pay: Float = 1.5", "pay: Float = 1.5, c: Int = 2"),
        ("b: Int = 1", "b: Int = 1, d: Timestamp?"),
        ("c: Int = 2", "c: Int = 2, e: String?, f: Int = 4"),
        ("d: Timestamp?", "d: Timestamp?, g: Int = 5"),
    ]
    text = BASE
    for number, (old, new) in enumerate(steps):
        text = text.replace(old, new)
        db.define(text)
        db.session().execute(
            "SPAWN w: Worker { name = $name, pay = $pay }", name=f"w{number}", pay=float(number)
        )
    db.session().execute('MATCH w: Worker WHERE w.name = "w0" SET w { e = "x", b = 10, f = 40 }')

    def check(db: Vedette) -> None:
        found = rows(db, "MATCH w: Worker RETURN w.name, w.pay, w.b, w.c, w.e, w.f, w.g ORDER BY w.name")
        assert found == [
            ("bob", 1.5, 1, 2, None, 4, 5),
            ("w0", 0.0, 10, 2, "x", 40, 5),
            *((f"w{n}", float(n), 1, 2, None, 4, 5) for n in range(1, 5)),
        ]
        assert rows(db, 'MATCH p: Person WHERE p.name = "ann" RETURN p.b, p.g, p.age') == [(1, 5, 30)]

    with_reopened(db, check)


def test_new_sibling_and_derived_types(db: Vedette) -> None:
    db.define(
        """node Boss: Worker { car: String? } node Note { text: String }
        edge about(note: Note, what: Person | Task) [acyclic]"""
    )
    db.session().run(
        """SPAWN b: Boss { name = "eve" }; SPAWN n: Note { text = "hi" }; LINK about(#n, #b);
        MATCH t: Task WHERE t.status = "todo" LINK does(#b, t)"""
    )

    def check(db: Vedette) -> None:
        assert rows(db, "MATCH w: Worker RETURN w.name ORDER BY w.name") == [("bob",), ("eve",)]
        assert rows(db, 'MATCH p: Person WHERE p.name = "eve" RETURN p.pay') == [(1.5,)], (
            "the index covers the new type"
        )
        assert rows(db, "MATCH p: Boss, about(n, p) RETURN n.text, p.name") == [("hi", "eve")]

        with pytest.raises(ConstraintViolation):
            db.session().execute('SPAWN b: Boss { name = "ann" }')

    with_reopened(db, check)


def test_new_index_contains_existing_elements(db: Vedette) -> None:
    db.define(BASE.replace("title: String", "title: String [indexed]"))

    def check(db: Vedette) -> None:
        plan = rows(db, 'EXPLAIN MATCH t: Task WHERE t.title = "paint" RETURN t')
        assert plan[0][0] == "index"
        assert len(rows(db, 'MATCH t: Task WHERE t.title = "paint" RETURN t')) == 2

    with_reopened(db, check)


def test_new_unique_attribute_over_valid_data(db: Vedette) -> None:
    db.session().execute('MATCH t: Task WHERE t.status = "done" SET t.title = "sand"')
    db.define(BASE.replace("title: String", "title: String [unique]"))

    def check(db: Vedette) -> None:
        with pytest.raises(ConstraintViolation) as caught:
            db.session().execute('SPAWN t: Task { title = "sand" }')
        assert caught.value.code == "E3003"

    with_reopened(db, check)


def test_new_constraint_over_valid_data(db: Vedette) -> None:
    db.define("constraint grown: p: Person WHERE p.age != null => p.age >= 18")

    def check(db: Vedette) -> None:
        with pytest.raises(ConstraintViolation):
            db.session().execute('SPAWN p: Person { name = "kid", age = 5 }')
        assert len(rows(db, "MATCH p: Person RETURN p")) == 2

    with_reopened(db, check)


# Refusals leave no trace


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (BASE.replace("title: String", "title: String [unique]"), "E3003", ["Task", "title", "paint"]),
        ("constraint old: p: Person => p.age > 99", "E3001", ["old"]),
        (BASE.replace("age: Int?", "age: String?"), "E2011", ["Person", "age"]),
        (BASE.replace("age: Int?", "age: Int"), "E2011", ["Person", "age", "null"]),
        (BASE.replace(", age: Int?", ""), "E2011", ["age", "missing"]),
        (BASE.replace("age: Int?", "age: Int?, must: Int [required]"), "E2011", ["must", "default"]),
        (BASE.replace("share: Float?", "share: Float?, code: Int = 1 [unique]"), "E2011", ["code", "unique"]),
        (
            BASE.replace("does(who: Worker, what: Task)", "does(who: Worker, what: Person)"),
            "E2011",
            ["does", "what"],
        ),
        (BASE.replace("does(who: Worker, what: Task)", "does(who: Worker)"), "E2011", ["does"]),
        ("node Other { x: Nothing }", "E2001", ["Nothing"]),
        ("node Other { x: Int } node Other { x: String }", "E2005", ["Other"]),
        ("node Fine { x: Int } constraint c: f: Fine => f.nope > 1", "E2002", ["nope"]),
        ("node Fine { x: Int } rule r: f: Fine => SET f.nope = 1", "E2002", ["nope"]),
        ("node Fine {} node {", "E1001", []),
        ("MATCH t: Task RETURN t", "E1001", []),
    ],
)
def test_refused_definition_leaves_no_trace(db: Vedette, text: str, code: str, words: list[str]) -> None:
    error = refused(db, text)
    assert error.code == code, error
    for word in words:
        assert word in str(error)
    db.define("node Other { x: Int }")  # the name is not used
    assert rows(db, "MATCH o: Other RETURN o") == []


def test_refusal_lists_all_errors(db: Vedette) -> None:
    error = refused(
        db,
        BASE.replace("age: Int?", "age: String?")
        .replace("pay: Float = 1.5", "pay: Int = 1")
        .replace(", what: Task", ""),
    )
    assert error.code == "E2011"
    for word in ("age", "pay", "does"):
        assert word in str(error)


def test_refusal_lists_all_contradicting_data(db: Vedette) -> None:
    """All errors at once."""
    session = db.session()
    session.run('SPAWN t: Task { title = "sand" }; SPAWN t: Task { title = "sand" }')
    error = refused(
        db,
        BASE.replace("title: String", "title: String [unique]")
        + 'constraint old: p: Person => p.age > 99 constraint done: t: Task => t.status = "done"',
    )
    assert isinstance(error, ConstraintViolation)
    for word in ("paint", "sand", "old", "done"):
        assert word in str(error), word


def test_soft_constraint_over_contradicting_data_warns(db: Vedette) -> None:
    """A soft constraint only warns, so existing data cannot violate it."""
    db.define("constraint old [soft]: p: Person => p.age > 99")
    assert db.session().execute('SPAWN p: Person { name = "kid", age = 5 }').warnings


def test_unique_attribute_cannot_have_a_shared_default(db: Vedette) -> None:
    error = refused(db, BASE.replace("title: String", 'title: String, code: String = "x" [unique]'))
    assert error.code == "E3003"


def test_identical_declarations_change_nothing(db: Vedette) -> None:
    before = everything(db)
    plans = db.default.state.plan_version
    session = db.session()
    session.execute("BEGIN")
    for text in (BASE, f"-- again\n{BASE}", 'node Task { title: String, status: String = "todo" }', ""):
        db.define(text)
    assert everything(db) == before
    assert db.default.state.plan_version == plans
    session.execute("MATCH t: Task RETURN t")
    session.execute("COMMIT")


def test_definitions_are_stored_in_order(db: Vedette) -> None:
    for number in range(5):
        parent = f": N{number - 1}" if number else ""
        db.define(f"node N{number}{parent} {{ a{number}: Int = {number} }}")
    db.session().execute("SPAWN n: N4 {}")

    def check(db: Vedette) -> None:
        assert rows(db, "MATCH n: N0 RETURN n.a0, n.a4") == [(0, 4)]

    with_reopened(db, check)


# Concurrent definitions


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "SERIALIZABLE"])
def test_define_aborts_open_transactions(db: Vedette, isolation: str) -> None:
    session, idle = db.session(), db.session()
    session.execute(f"BEGIN {isolation}")
    session.execute('SPAWN t: Task { title = "mine" }')
    db.define(BASE.replace('status: String = "todo"', 'status: String = "todo", size: Int = 3'))
    for text in ("MATCH t: Task RETURN t.size", 'SPAWN t: Task { title = "more" }', "SAVEPOINT a"):
        with pytest.raises(VedetteError, match="ontology changed") as caught:
            session.execute(text)
        assert caught.value.code == "E5005"
    with pytest.raises(VedetteError, match="rolled back") as caught:
        session.execute("COMMIT")
    assert caught.value.code == "E5005"
    assert len(rows(db, "MATCH t: Task RETURN t")) == 2
    session.run('BEGIN; SPAWN t: Task { title = "mine" }; COMMIT')
    assert idle.execute("MATCH t: Task RETURN SUM(t.size)").rows == [(9,)]


@pytest.mark.plain_core
@pytest.mark.parametrize(
    "statement", ["COMMIT", "MATCH t: Task RETURN t.title", 'MATCH t: Task SET t.title = "x"']
)
def test_prepared_statement_uses_the_new_ontology(
    db: Vedette, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """The statement checked its transaction before the definition and acquires the lock after it."""
    database = db.default
    session = db.session()
    session.run('BEGIN; SPAWN t: Task { title = "mine" }')
    reached, go = Event(), Event()
    lock = session.lock_scope

    class SlowLockScope:
        """Waits for the test before it acquires the lock."""

        observed_sequence, log_writer = 0, database.log_writer

        def __enter__(self) -> None:
            reached.set()
            assert go.wait(TIMEOUT_SECONDS)
            lock.__enter__()

        def __exit__(self, *error: Any) -> None:
            lock.__exit__(*error)

    session.lock_scope = SlowLockScope()  # type: ignore[assignment]
    work = in_thread(lambda: session.execute(statement).rows)
    assert reached.wait(TIMEOUT_SECONDS)
    db.define(
        BASE.replace('status: String = "todo"', 'status: String = "todo", size: Int = 3, d: Timestamp?')
    )
    go.set()
    error = work.exception(TIMEOUT_SECONDS)
    session.lock_scope = lock
    assert isinstance(error, VedetteError)
    assert (error.code, "ontology changed" in error.text) == ("E5005", True)
    assert len(rows(db, "MATCH t: Task RETURN t.size")) == 2
    database.state.graph.validate()


def test_concurrent_definitions_and_writes(db: Vedette) -> None:
    """In any order: every element has every attribute, and every definition is stored."""
    writers, steps = 4, 8
    over = Event()

    def write(name: int) -> int:
        count = 0
        with db.session() as session:
            while not over.is_set() or count < 5:
                session.execute("SPAWN t: Task { title = $title }", title=f"{name}.{count}")
                try:
                    session.run(
                        'BEGIN; MATCH t: Task WHERE t.title = $title SET t.status = "busy"; COMMIT',
                        title=f"{name}.{count}",
                    )
                except VedetteError as error:
                    if error.code != "E5005":
                        raise
                    if session.transaction is not None:
                        session.execute("ROLLBACK")
                count += 1
        return count

    def define() -> int:
        text = BASE
        try:
            for step in range(steps):
                old = 'status: String = "todo"'
                text = text.replace(old, f"{old}, a{step}: Float = {step}.5, t{step}: Timestamp?")
                db.define(text)
        finally:
            over.set()
        return 0

    counts = all_at_once(*(lambda name=name: write(name) for name in range(writers)), define)

    def check(db: Vedette) -> None:
        names = ", ".join(f"t.a{step}" for step in range(steps))
        found = rows(db, f"MATCH t: Task RETURN t.status, {names}")
        assert len(found) == 2 + sum(counts)
        assert all(row[1:] == tuple(step + 0.5 for step in range(steps)) for row in found)

    with_reopened(db, check)


def test_writes_and_definition_in_one_flush(tmp_path: Path) -> None:
    """Elements with the old layout are written together with the new definition."""
    disk = Disk()
    with opened_on(disk, tmp_path) as db:
        db.define(BASE)
        disk.hold()
        works: list[Future[object]] = [
            in_thread(lambda: db.session().execute('SPAWN t: Task { title = "a" }'))
        ]
        disk.wait_until_reached()
        for work in (
            lambda: db.session().execute('SPAWN t: Task { title = "b" }'),
            lambda: db.session().execute('SPAWN t: Task { title = "c" }'),
            lambda: db.define(
                BASE.replace(
                    'status: String = "todo"', 'status: String = "todo", d: Timestamp?, f: Float?, g: Int = 5'
                )
            ),
            lambda: db.session().execute('SPAWN t: Task { title = "d", f = 2.5 }'),
            lambda: db.session().execute('MATCH t: Task WHERE t.title = "c" KILL t'),
        ):
            future, early = returned_too_early(db.default, work)
            assert not early
            works.append(future)
        disk.release()
        for future in works:
            future.result(TIMEOUT_SECONDS)
        assert len(disk.batches) == 3
        expected = [("a", None, 5), ("b", None, 5), ("d", 2.5, 5)]
        assert rows(db, "MATCH t: Task RETURN t.title, t.f, t.g ORDER BY t.title") == expected
    with vedette.open(tmp_path) as again:
        assert rows(again, "MATCH t: Task RETURN t.title, t.f, t.g ORDER BY t.title") == expected


def test_concurrent_identical_definitions(db: Vedette) -> None:
    text = "node Extra { x: Int = 1 }"
    before = len(db.default._store.info().definitions)
    all_at_once(*[lambda: db.define(text)] * 8)
    assert rows(db, "MATCH e: Extra RETURN e") == []
    if db.location != ":memory:":
        assert len(db.default._store.info().definitions) == before + 1


def test_invalid_definition_texts(db: Vedette) -> None:
    for text in ("", "   ", "-- nothing"):
        db.define(text)
    with pytest.raises((ParseError, AnalysisError)):
        db.define("\0")
    with pytest.raises(ParseError):
        db.define("node A { x: Int = " + "(" * 10_000)
    with pytest.raises(VedetteError):
        db.define("node A {} " * 200_000)

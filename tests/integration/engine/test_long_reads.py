"""A long MATCH runs in slices on the state at its start, so that other sessions can write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from threading import Lock, Semaphore
from typing import Any

import pytest

import vedette
from tests.support.databases import FULL, Disk, in_thread, opened_on
from tests.support.waiting import TIMEOUT_SECONDS
from vedette.engine.data_directory import Vedette
from vedette.engine.session.session import Session
from vedette.errors import QueryError, StoreError, TransactionError, VedetteError

ONTOLOGY = """
node Thing { n: Int [indexed], group: Int, label: String? }
node Other: Thing { extra: Int = 0 }
edge joins(a: Thing, b: Thing) { weight: Int = 1 }
"""
THINGS = 120


class Pauses:
    """Replaces the pause between slices: in each pause another session runs."""

    def __init__(self) -> None:
        self.count = 0
        self.between: Callable[[int], object] = lambda number: None
        self._running = Lock()

    def __call__(self, seconds: float) -> None:
        self.count += 1
        if self._running.acquire(blocking=False):  # the function may run long reads itself
            try:
                in_thread(lambda: self.between(self.count)).result(TIMEOUT_SECONDS)
            finally:
                self._running.release()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> Pauses:
    pauses = Pauses()
    monkeypatch.setattr("vedette.engine.statements.execution.sleep", pauses)
    return pauses


def fill(db: Vedette) -> None:
    db.define(ONTOLOGY)
    with db.session() as session:
        session.execute("BEGIN")
        for number in range(THINGS):
            session.bindings["last"] = session.bindings.get("t", "")
            kind = "Other" if number % 3 == 0 else "Thing"
            session.execute(
                f"SPAWN t: {kind} {{ n = $n, group = $g, label = $l }}", n=number, g=number % 5, l=str(number)
            )
            if number:
                session.execute("LINK joins(#last, #t)")
        session.execute("COMMIT")


@pytest.fixture
def db() -> Iterator[Vedette]:
    with vedette.open(":memory:", statement_slice=500, environment={}) as db:
        fill(db)
        yield db


QUERIES = [
    "MATCH a: Thing, b: Thing RETURN a.n, b.n",
    "MATCH a: Thing, b: Other RETURN a.n, b.extra, b.label",
    "MATCH a: Thing, b: Thing WHERE a.group = b.group RETURN a.n, b.n, a.label",
    "MATCH a: Thing, b: Thing, c: Thing WHERE b.n = a.n AND c.group = a.group RETURN a.id, b.id, c.n",
    "MATCH a: Thing, b: Thing, joins(a, b) AS e, c: Thing RETURN a.n, b.n, e.weight, c.label",
    "MATCH a: Thing, b: Thing, joins+(a, b) RETURN a.n, b.n",
    "MATCH a: Thing, b: Thing WHERE EXISTS(joins(a, b)) RETURN a.n, b.n",
    "MATCH a: Thing, b: Thing WHERE NOT EXISTS(joins(a, x) WHERE x.group = b.group) RETURN a.n, b.n",
    "MATCH a: Thing, b: Thing OPTIONAL MATCH joins(b, c) RETURN a.n, b.n, c.n",
    "MATCH a: Thing, b: Thing RETURN a.group, COUNT(b), SUM(b.n), MAX(b.label)",
    "MATCH a: Thing, b: Thing RETURN DISTINCT a.group, b.group",
    "MATCH a: Thing, b: Thing RETURN a, b.n ORDER BY b.n DESC, a.n LIMIT 50 OFFSET 7",
    "MATCH a: Thing, b: Thing WHERE a.n < b.n RETURN a.n, b",
]


class Meddler:
    """A session that changes everything a read may examine: spawn, set, kill, link, unlink."""

    def __init__(self, db: Vedette) -> None:
        self.session = db.session()
        self.commits = 0

    def __call__(self, number: int) -> None:
        execute = self.session.execute
        execute("SPAWN t: Other { n = $n, group = 1, label = 'new' }".replace("'", '"'), n=10_000 + number)
        execute(
            "MATCH t: Thing WHERE t.n = $n SET t { group = t.group + 1, label = null }", n=number % THINGS
        )
        execute("MATCH t: Thing WHERE t.n = $n SET t.n = t.n + 1000", n=(number * 7) % THINGS)
        execute("MATCH t: Thing WHERE t.n = $n KILL t", n=(number * 3) % THINGS)
        execute(
            "MATCH a: Thing, b: Thing WHERE a.n = $n AND b.n = $n + 5 LINK joins(a, b)", n=number % THINGS
        )
        execute("MATCH joins(a, b) AS e WHERE a.n = $n UNLINK e", n=(number * 11) % THINGS)
        execute("MATCH joins(a, b) AS e WHERE a.n = $n SET e.weight = 99", n=(number * 5) % THINGS)
        self.commits += 7


# Other sessions run between slices


@pytest.mark.parametrize("query", QUERIES)
def test_long_read_shows_the_state_at_its_start(db: Vedette, pauses: Pauses, query: str) -> None:
    expected = db.session().execute(query).rows
    assert pauses.count > 3, "not long enough to show anything"
    before = pauses.count
    meddler = Meddler(db)
    pauses.between = meddler
    reader = db.session()
    rows = in_thread(lambda: reader.execute(query).rows).result(TIMEOUT_SECONDS)
    assert sorted(map(repr, rows)) == sorted(map(repr, expected))
    assert meddler.commits >= 7 * (pauses.count - before) > 0, "each pause let seven commits through"
    if "ORDER BY" in query:
        assert rows == expected
    pauses.between = lambda number: None
    assert sorted(map(repr, reader.execute(query).rows)) != sorted(map(repr, expected))
    assert not db.default.state.snapshots
    db.default.state.graph.validate()


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "SERIALIZABLE"])
@pytest.mark.parametrize("query", QUERIES[:7])
def test_long_read_in_a_transaction(db: Vedette, pauses: Pauses, query: str, isolation: str) -> None:
    """The read sees its own writes over the state at its start, and still releases the lock."""
    reader = db.session()
    reader.execute(f"BEGIN {isolation}")
    reader.execute('SPAWN t: Thing { n = 5, group = 2, label = "own" }')
    reader.execute("MATCH t: Thing WHERE t.n = 8 KILL t")
    reader.execute("MATCH t: Thing WHERE t.n = 9 SET t.group = 4")
    expected = reader.execute(query).rows
    assert pauses.count > 3
    meddler = Meddler(db)
    pauses.between = meddler
    rows = in_thread(lambda: reader.execute(query).rows).result(TIMEOUT_SECONDS)
    assert sorted(map(repr, rows)) == sorted(map(repr, expected))
    assert meddler.commits > 7
    pauses.between = lambda number: None
    again = reader.execute(query).rows
    assert (sorted(map(repr, again)) == sorted(map(repr, expected))) == (isolation == "SERIALIZABLE")
    reader.execute("ROLLBACK")
    assert not db.default.state.snapshots


def test_two_long_reads_and_a_writer(db: Vedette, pauses: Pauses) -> None:
    """Each read has its own snapshot."""
    query = "MATCH a: Thing, b: Thing RETURN COUNT(a)"
    counts: list[Any] = []

    def between(number: int) -> None:
        db.session().execute("SPAWN t: Thing { n = $n, group = 0 }", n=number)
        if not counts:
            counts.append(None)
            counts[0] = db.session().execute(query).rows

    pauses.between = between
    rows = in_thread(lambda: db.session().execute(query).rows).result(TIMEOUT_SECONDS)
    assert rows == [(THINGS**2,)]
    assert counts == [[((THINGS + 1) ** 2,)]]


@pytest.mark.plain_core
def test_short_read_takes_no_snapshot(db: Vedette, pauses: Pauses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(db.default.state, "open_snapshot", lambda: pytest.fail("a snapshot for a short read"))
    assert len(db.session().execute("MATCH t: Thing RETURN t").rows) == THINGS
    assert pauses.count == 0


def test_profile_runs_in_slices(db: Vedette, pauses: Pauses) -> None:
    rows = db.session().execute("PROFILE MATCH a: Thing, b: Thing RETURN a").rows
    assert pauses.count > 3
    assert rows[-1][-1] == THINGS**2


def test_actor_sees_its_view_at_the_start(db: Vedette, pauses: Pauses) -> None:
    db.define(
        """node User { name: String, level: Int }
        policy see: ON MATCH(t: Thing) ALLOW IF EXISTS(u: User WHERE u.id = current_actor() AND u.level >= t.group)
        policy users: ON MATCH(u: User) ALLOW IF true"""
    )
    system = db.session()
    ((user,),) = system.execute('SPAWN u: User { name = "u", level = 2 } RETURNING id').rows
    query = "MATCH a: Thing, b: Thing RETURN a.n, b.n"
    with db.session(user) as actor:
        expected = actor.execute(query).rows
        assert 0 < len(expected) < THINGS**2
        pauses.between = lambda number: (
            system.execute("MATCH u: User SET u.level = $n", n=number % 2),
            system.execute("MATCH t: Thing WHERE t.n = $n SET t.group = 0", n=number % THINGS),
        )
        assert sorted(in_thread(lambda: actor.execute(query).rows).result(TIMEOUT_SECONDS)) == sorted(
            expected
        )


# Limits


def limited(**settings: Any) -> Vedette:
    db = vedette.open(":memory:", environment={}, **settings)
    fill(db)
    return db


@pytest.mark.parametrize("slice_size", [100, 100_000], ids=["in slices", "in one slice"])
@pytest.mark.parametrize("transaction", [False, True])
@pytest.mark.parametrize(
    "query",
    [
        "MATCH a: Thing, b: Thing RETURN a.n, b.n",
        "MATCH a: Thing, b: Thing RETURN COUNT(a)",
        "MATCH a: Thing WHERE EXISTS(b: Thing WHERE b.n * 3 > a.n + 200) RETURN a",
        "MATCH a: Thing, b: Thing WHERE a.n + b.n > 1000000 RETURN a",
        "MATCH a: Thing, b: Thing, joins+(a, b) RETURN a",
        "MATCH a: Thing, b: Thing RETURN a.n ORDER BY b.n LIMIT 1",
    ],
)
def test_expensive_read_is_refused(slice_size: int, transaction: bool, query: str) -> None:
    with limited(statement_slice=slice_size, max_statement_work=3_000) as db:
        session = db.session()
        if transaction:
            session.execute("BEGIN")
        with pytest.raises(QueryError) as caught:
            session.execute(query)
        assert caught.value.code == "E2103"
        assert caught.value.fields == {"limit": 3_000}
        assert "EXPLAIN" in caught.value.text
        assert "max_statement_work" in caught.value.text
        if transaction:
            session.execute("ROLLBACK")
        assert len(session.execute("MATCH t: Thing RETURN t").rows) == THINGS, "the session goes on"
        assert not db.default.state.snapshots


@pytest.mark.parametrize(
    "statement",
    ["MATCH a: Thing, b: Thing SET a.group = b.group", "MATCH a: Thing, b: Thing LINK joins(a, b)"],
)
def test_expensive_write_is_refused_and_changes_nothing(statement: str) -> None:
    with limited(max_statement_work=3_000) as db:
        session = db.session()
        before = dict(db.default.state.graph.elements)
        with pytest.raises(QueryError) as caught:
            session.execute(statement)
        assert caught.value.code == "E2103"
        assert db.default.state.graph.elements == before


def test_limit_stops_early() -> None:
    with limited(statement_slice=100, max_statement_work=2_000) as db:
        session = db.session()
        rows = session.execute("MATCH a: Thing, b: Thing, c: Thing, d: Thing RETURN a.n, d.n LIMIT 15").rows
        assert len(rows) == 15
        rows = session.execute("MATCH a: Thing, b: Thing, c: Thing RETURN a.n LIMIT 5 OFFSET 10").rows
        assert len(rows) == 5
        assert len(session.execute("MATCH a: Thing WHERE EXISTS(b: Thing) RETURN a.n").rows) == THINGS


# Events between slices


def test_definition_during_a_long_read(db: Vedette, pauses: Pauses) -> None:
    query = "MATCH a: Thing, b: Thing RETURN a, b.label"
    expected = db.session().execute(query).rows
    done: list[int] = []

    def between(number: int) -> None:
        if not done:
            db.define(
                ONTOLOGY.replace("label: String?", "label: String?, grade: Int = 7, tag: String? [indexed]")
            )
            done.append(number)
            db.session().execute("SPAWN t: Other { n = 1, group = 1, grade = 8 }")

    pauses.between = between
    rows = in_thread(lambda: db.session().execute(query).rows).result(TIMEOUT_SECONDS)
    assert done
    assert sorted(map(repr, rows)) == sorted(map(repr, expected))
    pauses.between = lambda number: None
    new = db.session().execute(query).rows
    assert len(new) == (THINGS + 1) ** 2
    assert {row[0]["grade"] for row in new} == {7, 8}


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "SERIALIZABLE"])
def test_definition_during_a_long_read_aborts_the_transaction(
    db: Vedette, pauses: Pauses, isolation: str
) -> None:
    reader = db.session()
    reader.execute(f"BEGIN {isolation}")
    reader.execute('SPAWN t: Thing { n = 5, group = 2, label = "own" }')
    pauses.between = lambda number: db.define(
        ONTOLOGY.replace("label: String?", "label: String? [indexed], tag: String? [indexed]")
    )
    with pytest.raises(TransactionError, match="ontology changed") as caught:
        in_thread(lambda: reader.execute("MATCH a: Thing, b: Thing RETURN a, b").rows).result(TIMEOUT_SECONDS)
    assert caught.value.code == "E5005"
    reader.execute("ROLLBACK")
    assert not db.default.state.snapshots


def test_failed_write_during_a_long_read(tmp_path: Path, pauses: Pauses) -> None:
    """The read saw data that was lost before it became durable, so its result must not be returned."""
    disk = Disk()
    with opened_on(disk, tmp_path, statement_slice=500) as db:
        fill(db)
        query = "MATCH a: Thing, b: Thing RETURN a.n, b.n"
        disk.hold()
        lost = in_thread(lambda: db.session().execute("SPAWN t: Thing { n = -1, group = 0 }"))
        disk.wait_until_reached()
        reader = db.session()

        def between(number: int) -> None:
            if not lost.done():
                disk.breaks = FULL
                disk.release()
                assert isinstance(lost.exception(TIMEOUT_SECONDS), StoreError)

        pauses.between = between
        with pytest.raises(StoreError):
            in_thread(lambda: reader.execute(query).rows).result(TIMEOUT_SECONDS)
        pauses.between = lambda number: None
        assert len(reader.execute(query).rows) == THINGS**2
        assert not db.default.state.snapshots


def test_aborted_read_releases_its_snapshot(db: Vedette, pauses: Pauses) -> None:
    def between(number: int) -> None:
        raise KeyboardInterrupt

    pauses.between = between
    reader = db.session()
    with pytest.raises(KeyboardInterrupt):
        in_thread(lambda: reader.execute("MATCH a: Thing, b: Thing RETURN a").rows).result(TIMEOUT_SECONDS)
    assert not db.default.state.snapshots
    assert not db.default.lock.locked()
    pauses.between = lambda number: None
    assert reader.execute("MATCH t: Thing RETURN COUNT(t)").rows == [(THINGS,)]


def test_session_closed_during_a_long_read(db: Vedette, pauses: Pauses) -> None:
    """Closing the session or the directory waits for the statement."""
    reader = db.session()
    closing: list[Any] = []

    def between(number: int) -> None:
        if not closing:
            closing.append(in_thread(reader.close))

    pauses.between = between
    rows = in_thread(lambda: reader.execute("MATCH a: Thing, b: Thing RETURN a").rows).result(TIMEOUT_SECONDS)
    assert len(rows) == THINGS**2
    closing[0].result(TIMEOUT_SECONDS)
    with pytest.raises(VedetteError):
        reader.execute("MATCH t: Thing RETURN t")


@pytest.mark.plain_core
def test_other_threads_run_without_yielding(tmp_path: Path) -> None:
    """With the real pause: count commits of another thread while one read runs."""
    with vedette.open(tmp_path, statement_slice=2_000, environment={}) as db:
        fill(db)
        begun, commits = Semaphore(0), 0
        snapshot = db.default.state.open_snapshot

        def open_snapshot() -> Any:
            begun.release()
            return snapshot()

        db.default.state.open_snapshot = open_snapshot  # type: ignore[method-assign]
        query = "MATCH a: Thing, b: Thing, c: Other WHERE a.n + b.n + c.n < 0 RETURN a"
        reading = in_thread(lambda: db.session().execute(query).rows)
        assert begun.acquire(timeout=TIMEOUT_SECONDS)
        session: Session = db.session()
        while not reading.done():
            session.execute("SPAWN t: Thing { n = 1, group = 1 }")
            commits += 1
        assert reading.result(TIMEOUT_SECONDS) == []
        assert commits > 10, f"only {commits} commits got through"


# On an event loop


def on_loop(pauses: Pauses, work: Callable[[asyncio.AbstractEventLoop], Coroutine[Any, Any, Any]]) -> Any:
    """Run the read on a loop. The pauses are reported on the same loop, so the read must run elsewhere."""

    async def bounded() -> Any:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await work(asyncio.get_running_loop())

    return asyncio.run(bounded())


@pytest.mark.parametrize(
    "script",
    [
        "MATCH a: Thing, b: Thing RETURN a.n, b.n",
        "BEGIN; SPAWN t: Thing { n = 7, group = 7 }; MATCH a: Thing, b: Thing RETURN a.n, b.n; COMMIT",
        "PROFILE MATCH a: Thing, b: Thing RETURN a.n, b.n",
    ],
)
def test_long_read_does_not_block_the_loop(db: Vedette, pauses: Pauses, script: str) -> None:
    commits = 0

    async def commit() -> None:
        nonlocal commits
        async with db.async_session() as other:
            await other.execute("SPAWN t: Thing { n = 1, group = 1 }")
        commits += 1

    async def story(loop: asyncio.AbstractEventLoop) -> None:
        pauses.between = lambda number: asyncio.run_coroutine_threadsafe(commit(), loop).result(
            TIMEOUT_SECONDS
        )
        async with db.async_session() as session:
            results = await session.run(script)
        place = 2 if script.startswith("BEGIN") else 0
        size = THINGS + 1 if place else THINGS
        found = results[place].rows[-1][-1] if script.startswith("PROFILE") else len(results[place].rows)
        assert found == size**2
        assert commits == pauses.count > 3

    on_loop(pauses, story)
    assert not db.default.state.snapshots


def test_errors_of_a_long_read_on_a_loop(pauses: Pauses) -> None:
    async def story(loop: asyncio.AbstractEventLoop) -> None:
        with limited(statement_slice=100, max_statement_work=3_000) as db:
            async with db.async_session() as session:
                await session.execute("BEGIN")
                with pytest.raises(QueryError) as caught:
                    await session.execute("MATCH a: Thing, b: Thing RETURN a")
                assert caught.value.code == "E2103"
                with pytest.raises(TransactionError, match="a statement in it failed"):
                    await session.execute("MATCH t: Thing RETURN t")
                await session.execute("ROLLBACK")
                assert len((await session.execute("MATCH t: Thing RETURN t")).rows) == THINGS

    on_loop(pauses, story)


def test_cancelled_long_read_on_a_loop(db: Vedette, pauses: Pauses) -> None:
    """The session is free when the statement has ended; until then its next statement waits."""

    async def story(loop: asyncio.AbstractEventLoop) -> None:
        begun = asyncio.Event()
        pauses.between = lambda number: loop.call_soon_threadsafe(begun.set)
        session = db.async_session()
        work = asyncio.create_task(session.execute("MATCH a: Thing, b: Thing RETURN a"))
        await begun.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert not db.default.state.snapshots
        assert (await session.execute("MATCH t: Thing RETURN COUNT(t)")).rows == [(THINGS,)]

    on_loop(pauses, story)

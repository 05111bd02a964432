"""A result or an error is returned only when every commit that it depends on is durable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from tests.support.databases import FULL, Disk, all_at_once, in_thread, opened_on, returned_too_early
from tests.support.waiting import TIMEOUT_SECONDS
from vedette.engine.data_directory import Vedette
from vedette.engine.session.watch_handle import WatchHandle
from vedette.errors import ConstraintViolation, StoreError, VedetteError

ONTOLOGY = """
node Task { title: String [unique], n: Int = 0 }
node Person { name: String }
"""
SPAWN = 'SPAWN t: Task { title = "new" }'


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def db(disk: Disk, tmp_path: Path) -> Iterator[Vedette]:
    with opened_on(disk, tmp_path) as db:
        db.define(ONTOLOGY)
        db.session().execute('SPAWN t: Task { title = "old" }')
        yield db


@pytest.fixture
def held(db: Vedette, disk: Disk) -> Future[object]:
    """A commit that other sessions can see and that is not durable yet."""
    disk.hold()
    work: Future[object] = in_thread(execute(db, SPAWN))
    disk.wait_until_reached()
    return work


def execute(db: Vedette, text: str) -> Callable[[], object]:
    return lambda: db.session().execute(text).rows


def execute_async(db: Vedette, text: str) -> Callable[[], object]:
    async def run() -> object:
        async with db.async_session() as session:
            return (await session.execute(text)).rows

    return lambda: asyncio.run(run())


ROADS = pytest.mark.parametrize("road", [execute, execute_async])


@ROADS
@pytest.mark.parametrize(
    "text",
    [
        "MATCH t: Task RETURN t.title",
        'MATCH t: Task WHERE t.title = "new" RETURN t.title',
        "MATCH t: Task RETURN COUNT(t)",
        "MATCH p: Person RETURN p",
        "PROFILE MATCH t: Task RETURN t.title",
        "EXPLAIN MATCH t: Task RETURN t.title",
        "INSPECT #nothing",
        'MATCH t: Task WHERE t.title = "new" SET t.n = 1',
        'SPAWN p: Person { name = "x" }',
        "TICK",
    ],
)
def test_result_waits_for_the_commits_it_saw(
    db: Vedette,
    disk: Disk,
    held: Future[object],
    text: str,
    road: Callable[[Vedette, str], Callable[[], object]],
) -> None:
    work, early = returned_too_early(db.default, road(db, text))
    assert not early, "it returned data that may never have been stored"
    assert not held.done()
    disk.release()
    work.result(TIMEOUT_SECONDS)
    held.result(TIMEOUT_SECONDS)


@ROADS
@pytest.mark.parametrize(
    ("text", "code"),
    [
        (SPAWN, "E3003"),
        ('MATCH t: Task SET t.title = "same"', "E3003"),
        ("MATCH t: Nothing RETURN t", "E2001"),
        ("KILL #nothing", "E3601"),
        ("COMMIT", "E5004"),
    ],
)
def test_error_waits_for_the_commits_it_saw(
    db: Vedette,
    disk: Disk,
    held: Future[object],
    text: str,
    code: str,
    road: Callable[[Vedette, str], Callable[[], object]],
) -> None:
    """A unique violation reveals that an element exists; so do other errors."""
    work, early = returned_too_early(db.default, road(db, text))
    if code != "E5004":  # it depends on the session only
        assert not early
    disk.release()
    error = work.exception(TIMEOUT_SECONDS)
    assert isinstance(error, VedetteError)
    assert error.code == code


@ROADS
@pytest.mark.parametrize("text", ["MATCH t: Task RETURN t.title", SPAWN])
def test_failed_flush_reveals_no_lost_write(
    db: Vedette,
    disk: Disk,
    held: Future[object],
    text: str,
    road: Callable[[Vedette, str], Callable[[], object]],
) -> None:
    """Not even by an error: a used title would reveal an element that was never stored."""
    work, early = returned_too_early(db.default, road(db, text))
    assert not early
    disk.breaks = FULL
    disk.release()
    error = work.exception(TIMEOUT_SECONDS)
    assert isinstance(error, StoreError)
    assert not isinstance(error, ConstraintViolation)
    assert isinstance(held.exception(TIMEOUT_SECONDS), StoreError)
    assert execute(db, "MATCH t: Task RETURN t.title")() == [("old",)]


def test_transaction_reads_but_does_not_return_undurable_data(
    db: Vedette, disk: Disk, held: Future[object]
) -> None:
    session = db.session()
    begun, early = returned_too_early(db.default, lambda: session.execute("BEGIN"))
    assert not early
    disk.release()
    begun.result(TIMEOUT_SECONDS)
    held.result(TIMEOUT_SECONDS)
    disk.hold()
    ticked = in_thread(lambda: db.session().execute("TICK"))
    disk.wait_until_reached()
    read, early = returned_too_early(db.default, lambda: session.execute("MATCH t: Task RETURN t.title").rows)
    assert not early
    disk.release()
    assert read.result(TIMEOUT_SECONDS) == [("old",), ("new",)]
    ticked.result(TIMEOUT_SECONDS)
    session.execute("ROLLBACK")


def test_session_waits_for_its_actor_to_be_durable(db: Vedette, disk: Disk) -> None:
    """That the actor exists is a policy decision and waits like any other result."""
    disk.hold()
    spawned = in_thread(lambda: db.session().execute('SPAWN p: Person { name = "x" } RETURNING id').rows)
    disk.wait_until_reached()
    (id,) = [element.id for element in db.default.state.graph.scan(("Person",))]
    work, early = returned_too_early(db.default, lambda: db.session(id).actor)
    assert not early
    nobody, early = returned_too_early(db.default, lambda: db.session("nobody"))
    assert not early
    disk.release()
    assert spawned.result(TIMEOUT_SECONDS) == [(id,)]
    assert work.result(TIMEOUT_SECONDS) == id
    error = nobody.exception(TIMEOUT_SECONDS)
    assert isinstance(error, VedetteError)
    assert error.code == "E7003"


def test_define_returns_when_durable(db: Vedette, disk: Disk) -> None:
    disk.hold()
    work, early = returned_too_early(db.default, lambda: db.define("node Other { name: String }"))
    assert not early
    same, early = returned_too_early(db.default, lambda: db.define("node Other { name: String }"))
    assert not early, "it is the same only because of one that is not durable"
    user, early = returned_too_early(db.default, execute(db, "MATCH o: Other RETURN o"))
    assert not early
    wrong, early = returned_too_early(db.default, lambda: db.define("node Other { name: Int }"))
    assert not early
    disk.release()
    work.result(TIMEOUT_SECONDS)
    same.result(TIMEOUT_SECONDS)
    assert user.result(TIMEOUT_SECONDS) == []
    assert isinstance(wrong.exception(TIMEOUT_SECONDS), VedetteError)


def test_durable_results_are_returned_while_others_wait(db: Vedette, disk: Disk) -> None:
    """Another database has its own queue."""
    other = db.database("other")
    other.define(ONTOLOGY)
    disk.hold()
    work = in_thread(lambda: db.session().execute(SPAWN))
    disk.wait_until_reached()
    assert other.session().execute("MATCH t: Task RETURN t").rows == []
    disk.release()
    work.result(TIMEOUT_SECONDS)


def matched(events: list[Any]) -> list[str]:
    """Return every title in the events."""
    found = [event.match for event in events if event.match is not None]
    return [match["t.title"] for match in [*found, *(m for event in events for m in event.matches or ())]]


@pytest.mark.parametrize("fails", [False, True], ids=["durable", "lost"])
def test_watch_delivers_durable_events_only(db: Vedette, disk: Disk, fails: bool) -> None:
    """Computed while the disk writes; delivered afterwards or never."""
    session = db.session()
    earlier = session.watch("WATCH t: Task RETURN t.title")
    assert matched(earlier.poll()) == ["old"]
    disk.hold()
    work = in_thread(execute(db, SPAWN))
    disk.wait_until_reached()
    assert earlier.poll() == []
    made, early = returned_too_early(db.default, lambda: db.session().watch("WATCH t: Task RETURN t.title"))
    assert not early, "its first event holds what is not durable"
    received, early = returned_too_early(db.default, lambda: matched(next_events(earlier)))
    assert not early
    if fails:
        disk.breaks = FULL
    disk.release()
    if fails:
        assert isinstance(work.exception(TIMEOUT_SECONDS), StoreError)
        assert isinstance(made.exception(TIMEOUT_SECONDS), StoreError)
        assert earlier.poll() == []
        earlier.cancel()
        assert received.result(TIMEOUT_SECONDS) == []
    else:
        work.result(TIMEOUT_SECONDS)
        assert received.result(TIMEOUT_SECONDS) == ["new"]
        later = made.result(TIMEOUT_SECONDS)
        assert isinstance(later, WatchHandle)
        assert matched(next_events(later)) == ["old", "new"]
    assert sorted(matched(session.watch("WATCH t: Task RETURN t.title").poll())) == sorted(
        ["old"] if fails else ["old", "new"]
    )


def next_events(watch: WatchHandle) -> list[Any]:
    return [event for event in [watch.next(timeout=2 * TIMEOUT_SECONDS)] if event is not None]


def test_relaxed_does_not_wait(disk: Disk, tmp_path: Path) -> None:
    """With `relaxed` a commit is acknowledged before it is on disk, for threads and asyncio alike."""
    with opened_on(disk, tmp_path, durability="relaxed") as db:
        db.define(ONTOLOGY)
        disk.hold()
        db.session().execute(SPAWN)
        assert in_thread(execute(db, "MATCH t: Task RETURN t.title")).result(TIMEOUT_SECONDS) == [("new",)]
        assert in_thread(execute_async(db, "MATCH t: Task RETURN t.title")).result(TIMEOUT_SECONDS) == [
            ("new",)
        ]
        in_thread(execute_async(db, "MATCH t: Task SET t.n = 5")).result(TIMEOUT_SECONDS)
        assert db.default.log_writer.durable_sequence < db.default.state.sequence
        disk.release()


def test_memory_database_does_not_wait() -> None:
    with opened_on(Disk(), ":memory:") as db:
        db.define(ONTOLOGY)
        execute(db, SPAWN)()
        assert execute_async(db, "MATCH t: Task RETURN t.title")() == [("new",)]


# Shared flushes


@pytest.mark.parametrize("sessions", [32])
def test_commits_share_flushes(db: Vedette, disk: Disk, sessions: int) -> None:
    """While one flush runs, the commits of all others collect for the next."""
    before = len(disk.batches)
    disk.hold()
    works: list[Future[object]] = [in_thread(execute(db, SPAWN))]
    disk.wait_until_reached()
    for number in range(sessions):
        text = f'SPAWN p: Person {{ name = "{number}" }}'
        work, early = returned_too_early(db.default, execute(db, text))
        assert not early
        works.append(work)
    disk.release()
    for work in works:
        work.result(TIMEOUT_SECONDS)
    assert len(disk.batches) - before == 2
    assert len(disk.batches[-1].puts) == sessions


def test_many_threads_need_few_flushes(db: Vedette, disk: Disk) -> None:
    threads, commits = 32, 25
    before = len(disk.batches)

    def work() -> None:
        with db.session() as session:
            for number in range(commits):
                session.execute("SPAWN p: Person { name = $n }", n=str(number))

    all_at_once(*[work] * threads)
    flushes = len(disk.batches) - before
    assert sum(len(batch.puts) for batch in disk.batches[before:]) == threads * commits
    assert flushes < threads * commits / 4, f"{flushes} flushes for {threads * commits} commits"


def test_many_tasks_need_few_flushes(db: Vedette, disk: Disk) -> None:
    tasks, commits = 32, 25
    before = len(disk.batches)

    async def one() -> None:
        async with db.async_session() as session:
            for number in range(commits):
                await session.execute("SPAWN p: Person { name = $n }", n=str(number))

    async def everybody() -> None:
        await asyncio.gather(*(one() for _ in range(tasks)))

    asyncio.run(everybody())
    flushes = len(disk.batches) - before
    assert sum(len(batch.puts) for batch in disk.batches[before:]) == tasks * commits
    assert flushes < tasks * commits / 8, f"{flushes} flushes for {tasks * commits} commits"


def test_flush_keeps_the_order_of_edges_on_edges(db: Vedette, disk: Disk) -> None:
    """An edge follows the edges that it targets in the batch, also after changes of those."""
    db.define(
        "edge knows(a: Person, b: Person) { since: Int = 0 } edge doubts(e: edge<knows>) { n: Int = 0 }"
    )
    disk.hold()
    first = in_thread(lambda: db.session().execute(SPAWN))
    disk.wait_until_reached()
    script = """
        SPAWN a: Person { name = "a" }; SPAWN b: Person { name = "b" };
        LINK knows(#a, #b) AS k; LINK doubts(#k) AS d;
        SET #k.since = 5; SET #a.name = "c"
    """
    work, early = returned_too_early(db.default, lambda: db.session().run(script))
    assert not early
    disk.release()
    first.result(TIMEOUT_SECONDS)
    work.result(TIMEOUT_SECONDS)
    puts = [record for record in disk.batches[-1].puts if record.targets is not None]
    assert [record.type for record in puts] == ["knows", "doubts"]
    assert len(disk.batches[-1].journal) == 6

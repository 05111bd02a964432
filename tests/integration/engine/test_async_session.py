"""Sessions on asyncio: cancelled, closed, failed, and on several loops. No task waits forever."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import vedette
from tests.support.databases import FULL, Disk, all_at_once, in_thread, opened_on
from tests.support.waiting import TIMEOUT_SECONDS
from vedette.engine.data_directory import Vedette
from vedette.engine.session.async_session import AsyncSession
from vedette.errors import ParseError, StoreError, TransactionError, VedetteError

ONTOLOGY = "node Task { title: String [unique], n: Int = 0 }"


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def db(disk: Disk, tmp_path: Path) -> Iterator[Vedette]:
    with opened_on(disk, tmp_path) as db:
        db.define(ONTOLOGY)
        yield db


def run(work: Callable[[], Awaitable[Any]]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await work()

    return asyncio.run(bounded())


async def spawn(session: AsyncSession, title: str) -> Any:
    return await session.execute("SPAWN t: Task { title = $title }", title=title)


async def titles(db: Vedette) -> list[str]:
    async with db.async_session() as session:
        return sorted(row[0] for row in (await session.execute("MATCH t: Task RETURN t.title")).rows)


async def reached(disk: Disk) -> None:
    await asyncio.to_thread(disk.wait_until_reached)


def nobody_waits(db: Vedette) -> bool:
    return not db.default.durable_waiters._places


# The verbs of a session


def test_async_session_has_the_verbs_of_session(db: Vedette) -> None:
    async def story() -> None:
        async with db.async_session() as session:
            result = await session.execute("SPAWN t: Task { title = $title } RETURNING title", {"title": "a"})
            assert (result.created, result.rows, result.tick) == (1, [("a",)], 0)
            results = await session.run('BEGIN; SPAWN t: Task { title = "b" }; COMMIT')
            assert [result.created for result in results] == [0, 1, 0]
            with pytest.raises(ParseError):
                await session.execute("MATCH MATCH")
            with pytest.raises(VedetteError) as caught:
                await session.execute('SPAWN t: Task { title = "a" }')
            assert caught.value.code == "E3003"
        with pytest.raises(TransactionError) as closed:
            await session.execute("MATCH t: Task RETURN t")
        assert closed.value.code == "E5007"
        assert await titles(db) == ["a", "b"]

    run(story)


def test_statements_of_one_session_are_serialized(db: Vedette, disk: Disk) -> None:
    async def story() -> None:
        session = db.async_session()
        disk.hold()
        first = asyncio.create_task(spawn(session, "first"))
        await reached(disk)
        second = asyncio.create_task(session.execute("MATCH t: Task SET t.n = 7"))
        await asyncio.sleep(0)
        assert db.default.state.sequence == 2, "the second has not begun"
        disk.release()
        await first
        assert (await second).modified == 1

    run(story)


def test_loop_runs_while_sessions_wait(db: Vedette, disk: Disk) -> None:
    async def story() -> None:
        session = db.async_session()
        disk.hold()
        work = asyncio.create_task(spawn(session, "a"))
        await reached(disk)
        for _ in range(100):
            await asyncio.sleep(0)
        assert not work.done()
        disk.release()
        await work

    run(story)


# Cancelling


def test_cancelled_wait_keeps_the_session_usable(db: Vedette, disk: Disk) -> None:
    async def story() -> None:
        session = db.async_session()
        disk.hold()
        work = asyncio.create_task(spawn(session, "cancelled"))
        await reached(disk)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        disk.release()
        await spawn(session, "after")
        assert await titles(db) == ["after", "cancelled"], "the statement had started and was executed"

    run(story)
    assert nobody_waits(db)


def test_cancel_while_waiting_for_the_session(db: Vedette, disk: Disk) -> None:
    async def story() -> None:
        session = db.async_session()
        disk.hold()
        first = asyncio.create_task(spawn(session, "first"))
        await reached(disk)
        second = asyncio.create_task(spawn(session, "never begun"))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        disk.release()
        await first
        assert await titles(db) == ["first"]

    run(story)


def test_timeout_in_a_transaction(db: Vedette, disk: Disk) -> None:
    """The statement ran; only the wait was cancelled. The transaction can be committed or rolled back."""

    async def story() -> None:
        session, other = db.async_session(), db.async_session()
        await session.execute("BEGIN")
        disk.hold()
        work = asyncio.create_task(spawn(other, "other"))
        await reached(disk)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await spawn(session, "mine")
        disk.release()
        await work
        await session.execute("COMMIT")
        assert await titles(db) == ["mine", "other"]

    run(story)


def test_many_waiters_some_cancelled(db: Vedette, disk: Disk) -> None:
    async def story() -> None:
        sessions = [db.async_session() for _ in range(20)]
        disk.hold()
        works = [asyncio.create_task(spawn(session, f"{n:02}")) for n, session in enumerate(sessions)]
        await reached(disk)
        await asyncio.sleep(0)
        for work in works[::3]:
            work.cancel()
        disk.release()
        outcomes = await asyncio.gather(*works, return_exceptions=True)
        for number, outcome in enumerate(outcomes):
            assert isinstance(outcome, asyncio.CancelledError) == (number % 3 == 0)
        assert await titles(db) == [f"{n:02}" for n in range(20)]

    run(story)
    assert nobody_waits(db)


def test_loop_ends_while_tasks_wait(db: Vedette, disk: Disk) -> None:
    """The loop's futures are dropped, and other waiters are not affected."""
    disk.hold()

    async def abandon() -> None:
        session = db.async_session()
        asyncio.get_running_loop().call_soon(asyncio.create_task, spawn(session, "abandoned"))
        await asyncio.sleep(0)
        await reached(disk)

    asyncio.run(abandon())  # cancels the remaining tasks
    other = in_thread(lambda: run(lambda: titles(db)))
    disk.release()
    assert other.result(TIMEOUT_SECONDS) == ["abandoned"]
    run(lambda: titles(db))
    assert nobody_waits(db), "a loop that is gone is still remembered"


# Closing


def test_close_session_while_a_statement_waits(db: Vedette, disk: Disk) -> None:
    async def story() -> None:
        session = db.async_session()
        disk.hold()
        work = asyncio.create_task(spawn(session, "received"))
        await reached(disk)
        closing = asyncio.create_task(session.close())
        await asyncio.sleep(0)
        disk.release()
        assert (await work).created == 1
        await closing
        await session.close()
        assert await titles(db) == ["received"]

    run(story)


def test_close_vedette_while_tasks_wait(disk: Disk, tmp_path: Path) -> None:
    """Submitted commits are flushed and acknowledged; later ones are refused."""
    with opened_on(disk, tmp_path) as db:
        db.define(ONTOLOGY)

        async def story() -> None:
            sessions = [db.async_session() for _ in range(5)]
            disk.hold()
            works = [asyncio.create_task(spawn(session, str(n))) for n, session in enumerate(sessions)]
            await reached(disk)
            await asyncio.sleep(0)
            closing = asyncio.create_task(asyncio.to_thread(db.close))
            disk.release()
            for work in works:
                assert (await work).created == 1
            await closing
            with pytest.raises(VedetteError):
                await sessions[0].execute("MATCH t: Task RETURN t")

        run(story)
    with vedette.open(tmp_path) as again:
        assert run(lambda: titles(again)) == list("01234")


def test_close_vedette_while_tasks_write(tmp_path: Path) -> None:
    db = vedette.open(tmp_path)
    db.define(ONTOLOGY)
    received: list[str] = []
    enough = Event()

    async def write(name: int) -> str:
        session = db.async_session()
        for number in range(100_000):
            try:
                await spawn(session, f"{name}.{number}")
            except VedetteError as error:
                return error.code
            received.append(f"{name}.{number}")
            if len(received) > 40:
                enough.set()
        raise AssertionError("nobody closed it")

    async def everybody() -> list[str]:
        return await asyncio.gather(*map(write, range(5)))

    work = in_thread(lambda: run(everybody))
    assert enough.wait(TIMEOUT_SECONDS)
    db.close()
    assert set(work.result(TIMEOUT_SECONDS)) <= {"E5007", "E6005"}
    with vedette.open(tmp_path) as again:
        assert set(run(lambda: titles(again))) == set(received)


# Failing


def test_failed_flush_reaches_all_waiters(db: Vedette, disk: Disk) -> None:
    async def story() -> None:
        await spawn(db.async_session(), "kept")
        sessions = [db.async_session() for _ in range(6)]
        disk.hold()
        works = [asyncio.create_task(spawn(session, str(n))) for n, session in enumerate(sessions)]
        reader = asyncio.create_task(titles(db))
        await reached(disk)
        await asyncio.sleep(0)
        works[3].cancel()
        disk.breaks = FULL
        disk.release()
        outcomes = await asyncio.gather(*works, reader, return_exceptions=True)
        errors = [outcome for outcome in outcomes if isinstance(outcome, StoreError)]
        assert len(errors) == 6
        assert {error.code for error in errors} == {"E6001"}
        assert len({id(error) for error in errors}) == 6, "each has its own, with its own traceback"
        assert isinstance(outcomes[3], asyncio.CancelledError)
        disk.breaks = None
        with pytest.raises(StoreError) as caught:
            await spawn(sessions[3], "more")
        assert caught.value.code == "E6001", "it did not wait to hear of its loss, so it hears of it now"
        for session in sessions:
            with pytest.raises(StoreError) as caught:
                await spawn(session, "more")
            assert caught.value.code == "E6005"
            rows = (await session.execute("MATCH t: Task RETURN t.title")).rows
            assert rows == [("kept",)]

    run(story)
    assert nobody_waits(db)
    gc.collect()  # an exception that was never retrieved would be reported here, which fails the test


def test_threads_and_tasks_get_the_same_error(db: Vedette, disk: Disk) -> None:
    disk.hold()
    thread = in_thread(lambda: db.session().execute('SPAWN t: Task { title = "thread" }'))
    disk.wait_until_reached()
    joined = Event()

    async def story() -> None:
        work = asyncio.create_task(spawn(db.async_session(), "task"))
        await asyncio.sleep(0)
        joined.set()
        with pytest.raises(StoreError):
            await work
        assert await titles(db) == []

    task = in_thread(lambda: run(story))
    assert joined.wait(TIMEOUT_SECONDS)
    disk.breaks = FULL
    disk.release()
    task.result(TIMEOUT_SECONDS)
    assert isinstance(thread.exception(TIMEOUT_SECONDS), StoreError)


# Many loops


def test_many_loops_in_threads(db: Vedette) -> None:
    loops, tasks, commits = 5, 4, 10

    async def write(name: str) -> None:
        async with db.async_session() as session:
            for number in range(commits):
                await spawn(session, f"{name}.{number}")

    def one_loop(loop: int) -> None:
        async def everybody() -> None:
            await asyncio.gather(*(write(f"{loop}.{task}") for task in range(tasks)))

        run(everybody)

    def one_thread() -> None:
        with db.session() as session:
            for number in range(commits):
                session.execute("SPAWN t: Task { title = $title }", title=f"thread.{number}")

    all_at_once(*(lambda loop=loop: one_loop(loop) for loop in range(loops)), one_thread)
    assert len(run(lambda: titles(db))) == loops * tasks * commits + commits
    assert nobody_waits(db)


def test_full_queue_blocks_tasks_but_not_the_loop(disk: Disk, tmp_path: Path) -> None:
    with opened_on(disk, tmp_path) as db:
        db.define(ONTOLOGY)
        gate: Any = db.default.log_writer
        gate._high, gate._low = 8, 2

        async def story() -> int:
            sessions = [db.async_session() for _ in range(20)]
            disk.hold()
            works = [asyncio.create_task(spawn(session, str(n))) for n, session in enumerate(sessions)]
            await reached(disk)
            turns = 0
            while db.default.state.sequence < 8:
                await asyncio.sleep(0)
                turns += 1
                assert turns < 10_000
            disk.release()
            await asyncio.gather(*works)
            return len(await titles(db))

        assert run(story) == 20
        assert max(len(batch.puts) for batch in disk.batches) < 20

"""Watches on asyncio: no event is lost by a cancelled wait or a closed loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

import vedette
from tests.support.waiting import TIMEOUT_SECONDS
from vedette.engine.data_directory import Vedette
from vedette.errors import InvalidStatement, WatchError

ONTOLOGY = "node Task { n: Int = 0 }"
TASKS = "WATCH t: Task [initial: none] RETURN t.n AS n"


@pytest.fixture(params=[":memory:", "disk"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Vedette]:
    place = tmp_path if request.param == "disk" else request.param
    with vedette.open(place, environment={}) as db:
        db.define(ONTOLOGY)
        yield db


def write(db: Vedette, *numbers: int) -> Thread:
    """Write from a thread, as a program beside the loop would."""

    def work() -> None:
        session = db.session()
        for n in numbers:
            session.execute("SPAWN t: Task { n = $n }", n=n)

    thread = Thread(target=work)
    thread.start()
    return thread


def test_events_of_other_threads(db: Vedette) -> None:
    async def main() -> list[int]:
        async with db.async_session() as session, asyncio.timeout(TIMEOUT_SECONDS):
            watch = await session.watch(TASKS)
            thread = write(db, *range(50))
            seen = []
            async for event in watch:
                seen.append((event.match or {})["n"])
                if len(seen) == 50:
                    break
            thread.join()
            return seen

    assert asyncio.run(main()) == list(range(50))


def test_cancelled_wait_loses_no_event(db: Vedette) -> None:
    async def main() -> list[int]:
        async with db.async_session() as session, asyncio.timeout(TIMEOUT_SECONDS):
            watch = await session.watch(TASKS)
            thread = write(db, *range(200))
            seen: list[int] = []
            while len(seen) < 200:
                waiting = asyncio.ensure_future(watch.next())
                await asyncio.wait([waiting], timeout=0.0001)
                waiting.cancel()
                ended = (await asyncio.gather(waiting, return_exceptions=True))[0]
                if not isinstance(ended, BaseException):
                    assert ended is not None
                    seen.append((ended.match or {})["n"])
            thread.join()
            return seen

    assert asyncio.run(main()) == list(range(200))


def test_wait_ends_with_timeout_and_cancelled_watch(db: Vedette) -> None:
    async def main() -> None:
        async with db.async_session() as session, asyncio.timeout(TIMEOUT_SECONDS):
            watch = await session.watch(TASKS)
            assert await watch.next(timeout=0.01) is None
            assert await watch.next(timeout=0) is None
            waiting = asyncio.ensure_future(watch.next())
            await asyncio.sleep(0)
            await watch.cancel()
            assert await waiting is None
            assert watch.status == "cancelled"
            assert [event async for event in watch] == []

    asyncio.run(main())


def test_reliable_watch_is_attached_in_another_loop(db: Vedette) -> None:
    async def first() -> str:
        async with db.async_session() as session:
            return (await session.watch("WATCH t: Task [delivery: reliable, initial: none] RETURN t.n")).id

    async def second(id: str) -> int:
        async with db.async_session() as session, asyncio.timeout(TIMEOUT_SECONDS):
            watch = await session.attach(id)
            event = await watch.next()
            assert event is not None
            await watch.ack(event)
            return int((event.match or {})["t.n"])

    id = asyncio.run(first())
    write(db, 7).join()
    assert asyncio.run(second(id)) == 7


def test_closed_loop_does_not_affect_others(db: Vedette) -> None:
    async def main() -> None:
        session = db.async_session()
        await session.watch(TASKS)

    asyncio.run(main())
    write(db, 1).join()


def test_deliveries_in_an_event_loop(db: Vedette) -> None:
    async def main() -> list[tuple[int, ...]]:
        async with db.async_session() as session, asyncio.timeout(TIMEOUT_SECONDS):
            await session.execute("SPAWN t: Task { n = 1 }")
            watch = await session.watch("WATCH t: Task [mode: consume] RETURN t.n")
            async for event in watch:
                if event.type == "consumed":
                    await watch.ack(event)
                    break
            return (await session.execute("MATCH t: Task RETURN COUNT(*)")).rows

    assert asyncio.run(main()) == [(0,)]


def test_only_watches_can_be_awaited(db: Vedette) -> None:
    async def main() -> None:
        async with db.async_session() as session:
            with pytest.raises(InvalidStatement, match="E1101"):
                await session.watch("SPAWN t: Task")
            assert (await session.execute("MATCH t: Task RETURN COUNT(*)")).rows == [(0,)]
            with pytest.raises(WatchError, match="E8002"):
                await session.attach("nobody")

    asyncio.run(main())

"""A watch has one reader. A reader that lost its watch to another session takes no events."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import vedette
from tests.support.databases import in_thread
from tests.support.waiting import TIMEOUT_SECONDS, wait_until
from vedette.engine.data_directory import Vedette
from vedette.errors import WatchError

INBOX = "inbox = WATCH t: Task [delivery: reliable, initial: none] RETURN t.title"


@pytest.fixture
def db() -> Iterator[Vedette]:
    with vedette.open(":memory:", environment={}) as db:
        db.define("node Task { title: String }")
        yield db


def spawn(db: Vedette, title: str) -> None:
    with db.session() as session:
        session.execute("SPAWN t: Task { title = $title }", title=title)


def titles(events: list[vedette.Event]) -> list[str]:
    return [event.match["t.title"] for event in events if event.match is not None]


def test_reattached_watch_delivers_to_the_new_session_only(db: Vedette):
    with db.session() as one, db.session() as two:
        former = one.watch(INBOX)
        present = two.attach("inbox")
        spawn(db, "a")
        with pytest.raises(WatchError) as refusal:
            former.poll()
        assert refusal.value.code == "E8010"
        (event,) = present.poll()
        former.ack(event)  # the former reader cannot confirm it
        spawn(db, "b")
        assert titles([event]) == ["a"]
        with db.session() as three:
            assert titles(three.attach("inbox").poll()) == ["a", "b"]


def test_waiting_reader_is_informed_of_the_reattach(db: Vedette):
    with db.session() as one, db.session() as two:
        former = one.watch(INBOX)
        reader = in_thread(lambda: former.next(timeout=TIMEOUT_SECONDS))
        wait_until(lambda: former.watch.details.wakeup)
        two.attach("inbox")
        with pytest.raises(WatchError, match="E8010"):
            reader.result(TIMEOUT_SECONDS)


def test_closing_a_session_ends_waiting_reads(db: Vedette):
    one = db.session()
    former = one.watch(INBOX)
    reader = in_thread(lambda: former.next(timeout=TIMEOUT_SECONDS))
    wait_until(lambda: former.watch.details.wakeup)
    one.close()
    assert reader.result(TIMEOUT_SECONDS) is None
    spawn(db, "a")
    assert former.poll() == []
    assert former.next(timeout=TIMEOUT_SECONDS) is None
    with db.session() as two:
        assert titles(two.attach("inbox").poll()) == ["a"]


def test_reattach_in_an_event_loop(db: Vedette):
    async def read() -> None:
        session = db.async_session()
        watch = await session.watch(INBOX)
        reader = asyncio.create_task(watch.next(timeout=TIMEOUT_SECONDS))
        await asyncio.sleep(0)
        await session.close()
        assert await reader is None

    asyncio.run(read())


def test_reactor_ends_when_its_watch_is_reattached(db: Vedette):
    called: list[vedette.Event] = []
    reactor = db.reactor("mail", "WATCH t: Task [initial: none] RETURN t.title", called.append)
    with db.session() as session:
        taken = session.attach(reactor.id)
        wait_until(lambda: not reactor.running)
        spawn(db, "a")
        assert titles(taken.poll()) == ["a"]
    reactor.close()
    assert not called


def test_redelivered_event_is_one_layer_0_node(db: Vedette):
    with db.session() as one, db.session() as two:
        former = one.watch(INBOX)
        spawn(db, "a")
        assert titles(former.poll()) == ["a"]
        present = two.attach("inbox")
        nodes = "MATCH _watch_event(w, e) AS x RETURN x.position"
        assert two.execute(nodes).rows == [(1,)]
        assert titles(present.poll()) == ["a"]
        assert two.execute(nodes).rows == [(1,)]
        counters = "MATCH w: _Watch RETURN w.events_delivered, w.events_pending"
        assert two.execute(counters).rows == [(2, 0)]

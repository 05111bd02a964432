"""From the engine's thread to the loop: everything once and in order, together when the loop is busy."""

from __future__ import annotations

import asyncio
from threading import Thread
from typing import Any

from vedette.gateway.broker.engine_thread import EngineThread
from vedette.gateway.service import LoopPort
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.broker_link import CONGESTED_BYTES


def told(seq: int, size: int = 1) -> link.StreamEvent:
    return link.StreamEvent(stream=1, seq=seq, suffix=b"x" * size, committed_at=0.0)


def test_what_is_said_while_the_loop_is_busy_is_spread_together():
    async def busy() -> list[list[int]]:
        port, heard = LoopPort(asyncio.get_running_loop()), list[list[int]]()
        port.deliver = lambda records: heard.append([record.seq for record in records])
        port.send([told(1), told(2)])
        port.send([told(3)])
        await asyncio.sleep(0)
        port.send([told(4)])
        await asyncio.sleep(0)
        return heard

    assert asyncio.run(busy()) == [[1, 2, 3], [4]]


def test_everything_is_spread_once_and_in_order_whoever_is_faster():
    async def racing() -> list[int]:
        port, heard, whole = LoopPort(asyncio.get_running_loop()), list[int](), asyncio.Event()

        def said(records: list[Any]) -> None:
            heard.extend(record.seq for record in records)
            if len(heard) >= 10_000:
                whole.set()

        port.deliver = said

        def say_much() -> None:
            for n in range(5_000):
                port.send([told(2 * n), told(2 * n + 1)])

        engine = Thread(target=say_much)
        engine.start()
        await whole.wait()
        engine.join()
        assert not port.congested
        return heard

    assert asyncio.run(asyncio.wait_for(racing(), 60)) == list(range(10_000))


def test_it_is_congested_until_the_loop_has_come_to_it():
    async def much() -> None:
        port = LoopPort(asyncio.get_running_loop())
        port.deliver = lambda _: None
        found = []
        for size in (CONGESTED_BYTES, 1):
            port.send([told(size, size)])
            found.append(port.congested)
        await asyncio.sleep(0)
        assert [*found, port.congested] == [False, True, False]

    asyncio.run(much())


def test_nothing_is_kept_for_a_loop_that_has_ended():
    async def made() -> LoopPort:
        return LoopPort(asyncio.get_running_loop())

    port = asyncio.run(made())
    for seq in range(3):
        port.send([told(seq)])
    assert not port._queued


class FullBroker:
    """Has much to tell after each call, until it was told."""

    def __init__(self) -> None:
        self.is_over_threshold = False
        self.done: list[str] = []

    def call(self) -> None:
        self.done.append("call")
        self.is_over_threshold = True

    def process(self, _: Any) -> None:
        self.done.append("tell")
        self.is_over_threshold = False


def test_calls_that_lead_to_much_are_told_in_parts():
    broker = FullBroker()
    engine = EngineThread(lambda _: broker)  # type: ignore[arg-type, return-value]
    for _ in range(3):
        engine.post_event(broker.call)
    for _ in range(3):
        engine._batch()
    assert broker.done == ["call", "tell"] * 3

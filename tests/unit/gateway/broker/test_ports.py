"""`LoopPort` passes records from the engine thread to the event loop: each once, in order, batched when it is busy."""

from __future__ import annotations

import asyncio
from threading import Thread
from typing import Any

from vedette.gateway.broker.ports import LoopPort, StallDetector
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.broker_link import CONGESTED_BYTES


def event(seq: int, size: int = 1) -> link.StreamEvent:
    return link.StreamEvent(stream=1, seq=seq, suffix=b"x" * size, committed_at=0.0)


def test_records_sent_while_the_loop_is_busy_are_delivered_together():
    async def busy() -> list[list[int]]:
        port, delivered = LoopPort(asyncio.get_running_loop()), list[list[int]]()
        port.deliver = lambda records: delivered.append([record.seq for record in records])
        port.send([event(1), event(2)])
        port.send([event(3)])
        await asyncio.sleep(0)
        port.send([event(4)])
        await asyncio.sleep(0)
        return delivered

    assert asyncio.run(busy()) == [[1, 2, 3], [4]]


def test_records_of_another_thread_arrive_once_and_in_order():
    async def racing() -> list[int]:
        port, delivered, complete = LoopPort(asyncio.get_running_loop()), list[int](), asyncio.Event()

        def deliver(records: list[Any]) -> None:
            delivered.extend(record.seq for record in records)
            if len(delivered) >= 10_000:
                complete.set()

        port.deliver = deliver

        def send_many() -> None:
            for n in range(5_000):
                port.send([event(2 * n), event(2 * n + 1)])

        engine = Thread(target=send_many)
        engine.start()
        await complete.wait()
        engine.join()
        assert not port.congested
        return delivered

    assert asyncio.run(asyncio.wait_for(racing(), 60)) == list(range(10_000))


def test_a_port_is_congested_until_the_loop_has_delivered():
    async def send_much() -> None:
        port = LoopPort(asyncio.get_running_loop())
        port.deliver = lambda _: None
        found = []
        for size in (CONGESTED_BYTES, 1):
            port.send([event(size, size)])
            found.append(port.congested)
        await asyncio.sleep(0)
        assert [*found, port.congested] == [False, True, False]

    asyncio.run(send_much())


def test_records_for_a_loop_that_has_ended_are_dropped():
    async def make_port() -> LoopPort:
        return LoopPort(asyncio.get_running_loop())

    port = asyncio.run(make_port())
    for seq in range(3):
        port.send([event(seq)])
    assert not port._queued


def test_a_peer_stalls_above_the_high_bound_after_some_seconds_or_above_the_maximum_at_once():
    detector = StallDetector(high_bytes=10, seconds=5.0, max_bytes=40)
    assert not detector.is_stalled(11, now=0.0)
    assert not detector.is_stalled(11, now=4.9)
    assert not detector.is_stalled(10, now=5.0), "it has made progress"
    assert not detector.is_stalled(11, now=9.0)
    assert detector.is_stalled(11, now=14.0)
    assert StallDetector(high_bytes=10, seconds=5.0, max_bytes=40).is_stalled(41, now=0.0)

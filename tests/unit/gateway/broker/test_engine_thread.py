"""The engine thread runs events between batches, and coalesces acks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from vedette.gateway.broker.engine_thread import EngineThread
from vedette.gateway.wire import broker_link as link


class FullBroker:
    """A broker whose send queue is over its threshold after each event, until a batch is processed."""

    def __init__(self) -> None:
        self.send_queue = SimpleNamespace(is_over_threshold=False)
        self.done: list[str] = []

    def handle_event(self, event: str) -> None:
        self.done.append(event)
        self.send_queue.is_over_threshold = True

    def process(self, requests: Any) -> None:
        self.done.append(f"batch of {len(requests)}")
        self.send_queue.is_over_threshold = False


def test_events_that_fill_the_send_queue_are_interleaved_with_batches():
    broker = FullBroker()
    engine = EngineThread(lambda _: broker)  # type: ignore[arg-type, return-value]
    for number in range(3):
        engine.post_event(f"event {number}")
    for _ in range(3):
        engine._batch()
    assert broker.done == ["event 0", "batch of 0", "event 1", "batch of 0", "event 2", "batch of 0"]


def test_only_the_latest_ack_of_a_subscription_reaches_the_broker():
    broker = FullBroker()
    engine = EngineThread(lambda _: broker)  # type: ignore[arg-type, return-value]
    port: Any = object()
    for seq in (3, 7, 5):
        engine.post(port, link.AckEvents(conn=1, sub_id="a", seq=seq))
    engine.post(port, link.AckEvents(conn=1, sub_id="b", seq=1))
    assert {ack.sub_id: ack.seq for ack in engine._latest_acks.values()} == {"a": 7, "b": 1}
    engine._batch()
    assert broker.done == ["batch of 2"]

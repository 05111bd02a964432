"""Batches that are over before the gateway knows that it has subscribed."""

from __future__ import annotations

from typing import Any

import pytest

from vedette.gateway.collections.publish import CollectionPublisher
from vedette.gateway.collections.stream import StreamState
from vedette.transport.causal_order import CausalBuffer
from vedette.transport.ingest_messages import Complete, Deliver, DeliveredChange, WindowResult


class Heard:
    """Stands for a stream, and for the broker that its events go to."""

    def __init__(self, *, version: int, causal: bool) -> None:
        self.version, self.subscription_ids, self.partition_epochs = version, (7,), {1: 1}
        self.state = StreamState.REGISTERED
        self.causal_buffer: CausalBuffer[Any] | None = CausalBuffer() if causal else None
        self.told: list[int] = []

    def accept(self, change: DeliveredChange) -> bool:
        return change.offset > 0

    def append_change(self, change: Any, reason: Any) -> tuple[int, bytes]:
        return change.record.offset, b""

    def append_window(self, result: WindowResult, offset: int) -> tuple[int, bytes]:
        assert offset == 9
        return 100 + result.position, b""

    def publish(self, stream: Heard, seq: int, tail: bytes) -> None:
        stream.told.append(seq)


def change(offset: int) -> DeliveredChange:
    return DeliveredChange(
        tenant="t", collection="s::c", key="k", op="update", partition=1, epoch=1, seq=offset, offset=offset,
        time_ms=0, enter=[7],
    )  # fmt: skip


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("version", "live"), [(3, True), (4, True), (5, False)])
def test_a_batch_that_was_over_before_counts(version: int, live: bool, causal: bool) -> None:
    """Nobody says again that it is over; in causal order its changes would wait for the next one."""
    stream = Heard(version=version, causal=causal)
    telling = CollectionPublisher(stream, lambda *_: None)  # type: ignore[arg-type]
    telling.registration_started()
    telling.receive(Deliver(number=1, changes=[change(8), change(9)]))
    telling.receive(Complete(offset=9, share=0, shares=1, version=4))
    telling.add(stream, {})  # type: ignore[arg-type]
    telling.publish_early(stream)  # type: ignore[arg-type]
    telling.registration_finished()
    assert stream.told == ([8, 9] if live or not causal else [])
    assert (stream.state is StreamState.LIVE) is live
    telling.receive(Complete(offset=9, share=0, shares=1, version=5))
    assert stream.told == [8, 9]
    assert stream.state is StreamState.LIVE


def test_the_end_of_a_window_that_was_over_before_is_told() -> None:
    """Its repeat is no news."""
    stream = Heard(version=3, causal=False)
    telling = CollectionPublisher(stream, lambda *_: None)  # type: ignore[arg-type]
    end = WindowResult(subscription=7, position=1, payload=b"")
    telling.registration_started()
    telling.receive(Complete(offset=9, share=0, shares=1, version=4))
    telling.receive(Deliver(number=1, windows=[end]))
    telling.add(stream, {})  # type: ignore[arg-type]
    telling.publish_early(stream)  # type: ignore[arg-type]
    telling.receive(Deliver(number=2, windows=[end]))
    assert stream.told == [101]

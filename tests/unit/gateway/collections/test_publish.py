"""The collection publisher: early batches, and streams whose chain breaks."""

from __future__ import annotations

from typing import Any

import pytest

from vedette.gateway.collections.publish import CollectionPublisher, Outcome, Published, ResyncStreams
from vedette.gateway.collections.stream import StreamState
from vedette.gateway.streams.stream import EncodedEvent
from vedette.transport.causal_order import CausalBuffer
from vedette.transport.ingest_messages import Complete, Deliver, DeliveredChange, WindowResult


class FakeStream:
    """A stream whose events have the offset of their change as seq. A change with offset 13 cannot be encoded."""

    def __init__(self, *, version: int, causal: bool) -> None:
        self.version, self.subscription_ids, self.partition_epochs = version, (7,), {1: 1}
        self.state = StreamState.REGISTERED
        self.causal_buffer: CausalBuffer[Any] | None = CausalBuffer() if causal else None
        self.tenant = type("Tenant", (), {"name": "default"})
        self.stream_id = 1

    def accept(self, change: DeliveredChange) -> bool:
        return change.offset > 0

    def append_change(self, change: Any, kind: Any) -> EncodedEvent:
        if change.record.offset == 13:
            raise RuntimeError("cannot be encoded")
        return EncodedEvent(change.record.offset, b"")

    def append_window(self, result: WindowResult, offset: int) -> EncodedEvent:
        assert offset == 9
        return EncodedEvent(100 + result.position, b"")


def change(offset: int) -> DeliveredChange:
    return DeliveredChange(
        tenant="t", collection="s::c", key="k", op="update", partition=1, epoch=1, seq=offset, offset=offset,
        time_ms=0, enter=[7],
    )  # fmt: skip


def published(outcomes: list[Outcome]) -> list[int]:
    return [outcome.event.seq for outcome in outcomes if isinstance(outcome, Published)]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("version", "live"), [(3, True), (4, True), (5, False)])
def test_a_batch_that_completed_before_the_registration_counts(
    version: int, live: bool, causal: bool
) -> None:
    """The end of a batch is not repeated; with causal ordering its changes would wait for the next batch."""
    stream: Any = FakeStream(version=version, causal=causal)
    publisher = CollectionPublisher()
    publisher.registration_started()
    assert publisher.receive(Deliver(number=1, changes=[change(8), change(9)])) == []
    assert publisher.receive(Complete(offset=9, share=0, shares=1, index_version=4)) == []
    publisher.add(stream, {})
    early = published(publisher.publish_early(stream))
    publisher.registration_finished()
    assert early == ([8, 9] if live or not causal else [])
    assert (stream.state is StreamState.LIVE) is live
    late = published(publisher.receive(Complete(offset=9, share=0, shares=1, index_version=5)))
    assert early + late == [8, 9]
    assert stream.state is StreamState.LIVE


def test_an_early_window_result_is_published_once() -> None:
    stream: Any = FakeStream(version=3, causal=False)
    publisher = CollectionPublisher()
    result = WindowResult(subscription=7, position=1, payload=b"")
    publisher.registration_started()
    publisher.receive(Complete(offset=9, share=0, shares=1, index_version=4))
    publisher.receive(Deliver(number=1, windows=[result]))
    publisher.add(stream, {})
    assert published(publisher.publish_early(stream)) == [101]
    assert published(publisher.receive(Deliver(number=2, windows=[result]))) == []


@pytest.mark.parametrize("causal", [True, False])
def test_a_stream_gets_no_event_after_a_change_that_could_not_be_published(causal: bool) -> None:
    stream: Any = FakeStream(version=3, causal=causal)
    publisher = CollectionPublisher()
    publisher.add(stream, {})
    outcomes = publisher.receive(Deliver(number=1, changes=[change(12), change(13), change(14)]))
    outcomes += publisher.receive(Complete(offset=14, share=0, shares=1, index_version=4))
    assert published(outcomes) == [12]
    assert [each for each in outcomes if isinstance(each, ResyncStreams)] == [ResyncStreams((stream,), "gap")]
    assert not publisher.streams_by_subscription_id

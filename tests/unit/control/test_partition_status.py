"""Gateways receive the statuses that they do not know yet, and the delivered offset until it arrives."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from vedette.clock import SystemClock
from vedette.control.partition_status import PartitionStatusPublisher, changed_statuses
from vedette.sources.records import Partition
from vedette.subscriptions.registry.records import Gateway
from vedette.testing.receiver import IngestReceiver
from vedette.transport.ingest_messages import Complete, PartitionStatus


def test_a_gateway_receives_only_changed_statuses():
    live = Partition(id=1, source="s", number=0, epoch=1, seq=5)
    published: dict[int, PartitionStatus] = {}
    (first,) = changed_statuses(published, [live])
    assert first.state == "live"
    published[1] = first
    assert changed_statuses(published, [live]) == []
    stale = Partition(id=1, source="s", number=0, epoch=1, seq=9, state="stale", reason="gone")
    assert [status.state for status in changed_statuses(published, [stale])] == ["stale"]


def test_a_gateway_receives_the_delivered_offset_also_after_its_restart(tmp_path: Path):
    publisher = PartitionStatusPublisher("s")
    partitions = [Partition(id=1, source="s", number=0, epoch=1, seq=5)]
    delivered = Complete(offset=7, share=0, shares=1, index_version=2)
    expires_ms = int(SystemClock().now().timestamp() * 1000) + 60_000
    gateways = [Gateway(1, "g", str(tmp_path / "in"), expires_ms)]
    publisher.publish(partitions, gateways, delivered)  # the gateway is not reachable yet

    def is_received(receiver: IngestReceiver) -> bool:
        publisher.publish(partitions, gateways, delivered)
        return bool(receiver.statuses) and delivered in receiver.completed

    for _ in range(2):  # its first start, and a restart
        receiver = IngestReceiver(tmp_path / "in", secret="s")
        assert receiver.wait_for(partial(is_received, receiver))
        assert [status.partition for status in receiver.statuses[0].partitions] == [1]
        receiver.close()
        (tmp_path / "in").unlink()
    publisher.close()

"""Where a query begins is decided once; how far everything is told reaches gateways also when a word was lost."""

from __future__ import annotations

from pathlib import Path

from tests.unit.pipeline.batches import nowhere
from vedette.clock import SystemClock
from vedette.control.partition_status import PartitionStatusPublisher
from vedette.pipeline.checkpoint import initial_offset, last_committed_offset
from vedette.pipeline.task import PipelineConfig
from vedette.sources.journal.seam import open_journal
from vedette.sources.records import Partition, Source, SourceEvent
from vedette.subscriptions.registry.registry import Gateway
from vedette.testing.receiver import IngestReceiver
from vedette.transport.ingest_messages import Complete


def test_the_first_offset_stays(tmp_path: Path):
    journal = open_journal(tmp_path)
    journal.add_source(Source(name="shop", kind="mongodb", address=""))
    checkpoint = tmp_path / "checkpoint"
    for n in range(2):
        event = SourceEvent(event_id=f"e{n}", collection="c", key="k", after=b"{}", created=True, time_ms=0)
        journal.append("shop", [event], None)
        assert initial_offset(checkpoint, journal.address) == 1
    assert initial_offset(checkpoint, journal.address, start=0) == 1, "what is written down counts"
    assert initial_offset(tmp_path / "another", journal.address, start=0) == 0
    journal.close()


def test_what_is_committed_counts_and_not_what_is_planned(tmp_path: Path):
    assert last_committed_offset(tmp_path) is None
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    for batch in range(12):
        (tmp_path / "offsets" / str(batch)).write_text(f'v1\n{{}}\n{{"offset": {batch * 10}, "version": 3}}')
    assert last_committed_offset(tmp_path) is None
    for batch in range(11):
        (tmp_path / "commits" / str(batch)).write_text("v1\n{}")
        (tmp_path / "commits" / f".{batch}.crc").write_text("")
    assert last_committed_offset(tmp_path) == {"offset": 100, "version": 3}


def test_a_gateway_hears_how_far_everything_is_told_until_it_has_heard(tmp_path: Path):
    teller = PartitionStatusPublisher(
        PipelineConfig(
            journal_url="", registry_url="", index_folder=nowhere().index_folder, ingest_secret="s"
        )
    )
    partitions = [Partition(id=1, source="s", number=0, epoch=1, seq=5)]
    end = Complete(offset=7, share=0, shares=1, version=2)
    until = int(SystemClock().now().timestamp() * 1000) + 60_000
    gateways = [Gateway(1, "g", str(tmp_path / "in"), until)]
    teller.publish(partitions, gateways, end)  # it is not there yet
    for _ in range(2):  # it comes, and once more after a restart
        receiver = IngestReceiver(tmp_path / "in", secret="s")
        assert receiver.wait_for(lambda r=receiver: _tell_and_look(teller, partitions, gateways, end, r))  # type: ignore[misc]
        assert [status.partition for status in receiver.statuses[0].partitions] == [1]
        receiver.close()
        (tmp_path / "in").unlink()
    teller.close()


def _tell_and_look(
    teller: PartitionStatusPublisher,
    partitions: list[Partition],
    gateways: list[Gateway],
    end: Complete,
    receiver: IngestReceiver,
) -> bool:
    teller.publish(partitions, gateways, end)
    return bool(receiver.statuses) and end in receiver.completed

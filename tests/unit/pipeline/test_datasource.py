"""The stream readers without Spark: modes of lagging partitions, and heartbeats."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from vedette.pipeline.datasource import ChangesStreamReader, JournalDataSource, journal_options
from vedette.pipeline.offsets import encode_offset
from vedette.pipeline.schema import RangeEnd, split_range_end
from vedette.pipeline.task import PipelineConfig
from vedette.pipeline.worker_cache import close_connections
from vedette.sources.journal.seam import CollectionJournal, open_journal
from vedette.sources.records import Source, SourceEvent
from vedette.subscriptions.registry.registry import SubscriptionRegistry


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[CollectionJournal]:
    journal = open_journal(tmp_path)
    journal.add_source(Source(name="shop", kind="mongodb", address="", partitions=2))
    yield journal
    close_connections()
    journal.close()


def config(journal: CollectionJournal, folder: Path, registry_url: str = "") -> PipelineConfig:
    return PipelineConfig(
        journal_url=journal.address, registry_url=registry_url, index_folder=folder / "index"
    )


def test_a_degraded_partition_is_read_and_not_delivered(journal: CollectionJournal, tmp_path: Path):
    events = [
        SourceEvent(event_id=f"e{n}", collection="c", key=f"k{n}", after=b'{"n":1}', created=True, time_ms=0)
        for n in range(40)
    ]
    last = journal.append("shop", events, None).offset
    degraded, normal = (partition.id for partition in journal.partitions())
    registry = SubscriptionRegistry(tmp_path)
    registry.set_mode(degraded, "degraded")
    reader = ChangesStreamReader(journal_options(config(journal, tmp_path, registry.address), start=0))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == encode_offset(last, 0, modes={degraded: "degraded"})
    registry.set_mode(
        degraded, "normal"
    )  # the modes are part of the offset: a retried batch reads the same rows
    for _ in range(2):
        (range_,) = reader.partitions(start, end)
        *batches, range_end = reader.read(range_)
        partitions = [partition for batch in batches for partition in batch["partition"].to_pylist()]
        assert set(partitions) == {normal}
        assert split_range_end(range_end)[1] == RangeEnd(
            offset=last, share=0, shares=1, index_version=0, skipped_changes=40 - len(partitions)
        )
    assert "modes" not in reader.latestOffset(start, ReadAllAvailable())
    registry.close()


def test_an_idle_stream_has_an_empty_batch_per_heartbeat(journal: CollectionJournal, tmp_path: Path):
    """Without it, Spark would end its idle Python workers, and the next change would wait for new ones."""
    place = config(journal, tmp_path)
    idle = ChangesStreamReader(journal_options(place, start=0, max_wait_seconds=0.01))
    reader = ChangesStreamReader(journal_options(place, start=0, max_wait_seconds=0.01, heartbeat_seconds=0))
    start = idle.initialOffset()
    assert idle.latestOffset(start, ReadAllAvailable()) == start, "no heartbeat is due"
    for heartbeat in (1, 2):
        end = reader.latestOffset(start, ReadAllAvailable())
        assert end == encode_offset(0, 0, heartbeat=heartbeat)
        (range_,) = reader.partitions(start, end)
        (batch,) = reader.read(range_)
        changes, range_end = split_range_end(batch)
        assert (changes.num_rows, range_end) == (0, range_.end(0))
        start = end
    event = SourceEvent(event_id="e", collection="c", key="k", after=b'{"n":1}', created=True, time_ms=0)
    last = journal.append("shop", [event], None).offset
    assert reader.latestOffset(start, ReadAllAvailable()) == encode_offset(last, 0)


def test_no_option_reveals_the_secret_and_spark_redacts_addresses(tmp_path: Path):
    secret = PipelineConfig(
        journal_url="postgresql://u:password@h/db",
        registry_url="postgresql://u:password@h/db",
        index_folder=tmp_path,
        ingest_secret="secret",
    )
    options = journal_options(secret, start=0)
    assert not any("secret" in value for value in options.values())
    assert all("url" in name for name, value in options.items() if "password" in value)


def test_the_option_lateness_selects_the_windows_reader(journal: CollectionJournal, tmp_path: Path):
    place = config(journal, tmp_path)
    for lateness_ms, expected in ((None, "ChangesStreamReader"), (500, "WindowsStreamReader")):
        source = JournalDataSource(journal_options(place, start=0, lateness_ms=lateness_ms))
        assert type(source.streamReader(source.schema())).__name__ == expected

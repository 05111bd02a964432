"""A task with real connections: pieces are sent at once, counted when accepted, and delivered again after a failure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.pipeline.batches import batch_of, row
from vedette.pipeline.schema import RangeEnd, range_end_to_batch
from vedette.pipeline.task import COUNTS_COLUMN, Counters, PipelineConfig
from vedette.pipeline.topology import MatchAndDeliver
from vedette.pipeline.worker_cache import close_connections
from vedette.sources.journal.seam import open_journal
from vedette.subscriptions.index.compactor import Compactor
from vedette.subscriptions.registry.records import SubscriptionRequest
from vedette.subscriptions.registry.registry import SubscriptionRegistry
from vedette.subscriptions.spec import SubscriptionSpec
from vedette.testing.receiver import IngestReceiver
from vedette.transport import unaccepted
from vedette.transport.ingest_messages import DeliveredChange


class Pipeline:
    """One gateway with a subscription to every change, and ranges of the journal in pieces."""

    def __init__(self, folder: Path) -> None:
        self.receiver = IngestReceiver(folder / "g1", secret="s")
        self.registry = SubscriptionRegistry(folder)
        self.registry.acquire_lease("g1", self.receiver.address, 60)
        request = SubscriptionRequest(
            id="1",
            tenant="t",
            collection="shop::orders",
            boundary=0,
            spec=SubscriptionSpec(kind="cel", source="true"),
        )
        self.registry.register("g1", [request], 60)
        self.version = Compactor(self.registry, folder / "index").publish().version
        self.journal = open_journal(folder)
        self.config = PipelineConfig(
            journal_url=self.journal.address,
            registry_url=self.registry.address,
            index_folder=folder / "index",
            ingest_secret="s",
        )

    def pieces(self, *sizes: int) -> Iterator[Any]:
        """Batches of these sizes, then the end of the range."""
        last = 0
        for size in sizes:
            yield batch_of(*(row(n) for n in range(last + 1, last + size + 1)), version=self.version)
            last += size
        yield range_end_to_batch(
            RangeEnd(offset=last, share=0, shares=1, index_version=self.version, skipped_changes=2)
        )

    def run(self, batches: Iterator[Any]) -> Counters:
        (counts,) = MatchAndDeliver(self.config)(batches)
        return Counters.sum(counts[COUNTS_COLUMN].to_pylist())

    def close(self) -> None:
        close_connections()
        self.receiver.close()
        self.registry.close()
        self.journal.close()


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    pipeline = Pipeline(tmp_path)
    yield pipeline
    pipeline.close()


def offsets(changes: Sequence[DeliveredChange]) -> list[int]:
    return [change.offset for change in changes]


def test_a_piece_is_sent_before_the_next_one_is_read(pipeline: Pipeline):
    received: list[int] = []

    def observed() -> Iterator[Any]:
        for piece in pipeline.pieces(3, 4):
            received.append(len(pipeline.receiver.changes))
            yield piece
            pipeline.receiver.wait_for(lambda: len(pipeline.receiver.changes) >= min(7, 3 + received[-1]))

    counters = pipeline.run(observed())
    assert received == [0, 3, 7]
    assert (counters.deliveries, counters.skipped) == (7, 2)
    assert pipeline.receiver.wait_for(lambda: [frame.offset for frame in pipeline.receiver.completed] == [7])


def test_a_range_end_in_the_same_batch_as_changes(pipeline: Pipeline):
    """Spark combines the batches of the data source."""
    counters = pipeline.run(iter([pa.concat_batches(list(pipeline.pieces(3, 4)))]))
    assert (counters.changes, counters.deliveries) == (7, 7)
    assert pipeline.receiver.wait_for(lambda: [frame.offset for frame in pipeline.receiver.completed] == [7])


def test_a_gateway_that_restarts_between_two_pieces_receives_the_whole_range(
    pipeline: Pipeline, tmp_path: Path
):
    former = pipeline.receiver

    def restarting() -> Iterator[Any]:
        for number, piece in enumerate(pipeline.pieces(3, 4, 5)):
            if number == 1:
                former.wait_for(lambda: len(former.changes) == 3)
                former.accepting = False
                pipeline.receiver = IngestReceiver(tmp_path / "g1 again", secret="s")
                pipeline.registry.acquire_lease("g1", pipeline.receiver.address, 60)
            yield piece

    pipeline.run(restarting())
    assert offsets(former.changes) == [1, 2, 3]
    assert offsets(pipeline.receiver.changes) == list(range(1, 13))
    assert pipeline.receiver.wait_for(lambda: [frame.offset for frame in pipeline.receiver.completed] == [12])
    former.close()


def test_a_failed_attempt_leaves_no_counts_behind(pipeline: Pipeline):
    def failing() -> Iterator[Any]:
        yield next(pipeline.pieces(3, 4))
        raise RuntimeError("the task fails")

    with pytest.raises(RuntimeError):
        pipeline.run(failing())
    assert pipeline.run(pipeline.pieces(3, 4)).deliveries == 7
    assert offsets(list(pipeline.receiver.unique.values())) == list(range(1, 8))


def test_a_task_flushes_when_its_outbox_is_full(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(unaccepted, "MAX_UNACCEPTED_CHANGES", 5)
    flushed: list[int] = []
    flush = unaccepted.UnacceptedDeliveries.flush

    def recording(outbox: unaccepted.UnacceptedDeliveries[Any]) -> int:
        flushed.append(len(outbox))
        return flush(outbox)

    monkeypatch.setattr(unaccepted.UnacceptedDeliveries, "flush", recording)
    assert pipeline.run(pipeline.pieces(3, 3, 1, 4, 2)).deliveries == 13
    assert flushed == [6, 5, 2, 0]

"""The same stories on both hosts: for watches of one element, engine and pipeline deliver the same events."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import Shop
from tests.spark.story_log import Recorded, RecordedWatch, record
from tests.stories.catalogue import STORIES
from vedette.clock import SystemClock
from vedette.errors import SourceError, SubscriptionError
from vedette.pipeline.queries.changes import drain_and_stop, start_changes_query
from vedette.sources.graph.reader import GraphLogReader, encode_token
from vedette.sources.images import decode_image
from vedette.sources.records import Source
from vedette.subscriptions.collection_watch import CollectionWatch, parse_collection_watch
from vedette.subscriptions.registry.records import SubscriptionRequest
from vedette.subscriptions.spec import SubscriptionSpec
from vedette.testing.receiver import IngestReceiver
from vedette.transport.ingest_messages import Deliver, DeliveredChange
from vedette.transport.receiver import ChangeReceiver, MatchedChange
from vedette.watch.delta import value_key

MEMORY = next((path for path in ("/dev/shm",) if Path(path).is_dir()), None)
SINGLE = [story for story in STORIES["watch"] if story.scope == "node"]
ENGINE_ONLY = (
    "an expression of the kind",  # now() and computed values
    "an aggregate without a window",
    "COLLECT over an external collection needs a limit",
    "DISTINCT",
    "without the name of a collection",  # any
    "computed value in RETURN",
    "no longer has the changes after",  # a log that the story trims
)
"""Parts of error texts: these watches need more than one document, or the engine's clock."""


@dataclass
class PipelineWatch:
    """A watch of a story on the pipeline, and its events."""

    watch: RecordedWatch
    spec: CollectionWatch
    events: list[tuple[str, Any, Any]] = field(default_factory=list)

    def apply(self, kind: str, change: DeliveredChange) -> None:
        before, after = (
            self.spec.row(change.key, decode_image(image), change.collection) if image is not None else None
            for image in (change.before, change.after)
        )
        match kind:
            case "enter":
                self.events.append(("added", after, None))
            case "update":
                self.events.append(("changed", after, before))
            case _:
                self.events.append(("removed", before, None))


@dataclass
class Catalogue:
    stories: dict[str, Recorded] = field(default_factory=dict)
    watches: dict[str, list[PipelineWatch]] = field(default_factory=dict)
    refused: dict[str, list[str]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def catalogue(spark: Any) -> Iterator[Catalogue]:
    """Run all stories on engines, read their logs into one journal, and run all their watches on one stream."""
    data_folder = Path(
        tempfile.mkdtemp(dir=MEMORY)
    )  # in memory, because 157 engines would spend most of the time waiting for the disk
    shop = Shop(data_folder, IngestReceiver(data_folder / "in", secret="s"))
    found, numbers = Catalogue(), {}
    for number, story in enumerate(SINGLE):
        tenant = f"story{number}"
        recorded = found.stories[story.title] = record(story, data_folder / tenant)
        try:
            boundary = read_log(shop, recorded, tenant)
        except SourceError as error:
            found.refused[story.title] = [error.text]
            continue
        for place, watch in enumerate(recorded.watches):
            if any(type_.startswith("_") for type_ in watch.types):
                continue  # Layer 0 elements are computed, and are in no log
            try:
                spec = parse_collection_watch(watch.text, watch.params)
            except SubscriptionError as error:
                found.refused.setdefault(story.title, []).append(error.text)
                continue
            on_pipeline = PipelineWatch(watch, spec)
            found.watches.setdefault(story.title, []).append(on_pipeline)
            numbers.update(
                dict.fromkeys(subscribe(shop, f"{tenant} {place}", watch, tenant, boundary), on_pipeline)
            )
    shop.compactor.publish()
    deliver_all(spark, shop, numbers, data_folder / "checkpoint")
    yield found
    shop.close()
    shutil.rmtree(data_folder)


def read_log(shop: Shop, recorded: Recorded, tenant: str) -> int:
    """Append the whole log. Return the offset after which the story's watches start."""
    source = Source(name=tenant, kind="graph", address=str(recorded.log), tenant=tenant, partitions=2)
    shop.journal.add_source(source)
    reader = GraphLogReader(source, shop.journal, SystemClock())
    shop.journal.append(tenant, [], encode_token(reader.epoch, 0))
    before = shop.journal.last_offset()
    while reader.poll(0.0)[0]:
        pass
    reader.close()
    rows = shop.journal.read(before, shop.journal.last_offset())
    early = [row.offset for row in rows if int(row.transaction.removeprefix("t")) <= recorded.first_sequence]
    return max(early, default=before)


def subscribe(shop: Shop, id: str, watch: RecordedWatch, tenant: str, boundary: int) -> list[int]:
    """Register one subscription per concrete type."""
    spec = SubscriptionSpec(kind="watch", source=watch.text, params=dict(watch.params))
    requests = [
        SubscriptionRequest(id=f"{id} {type_}", tenant=tenant, collection=type_, boundary=boundary, spec=spec)
        for type_ in watch.types
    ]
    return shop.registry.register("g1", requests, 3600)


def deliver_all(spark: Any, shop: Shop, numbers: dict[int, PipelineWatch], checkpoint: Path) -> None:
    last = shop.journal.last_offset()
    query = start_changes_query(spark, shop.config, checkpoint, start=0)
    try:
        assert shop.receiver.wait_for(
            lambda: any(frame.offset >= last for frame in shop.receiver.completed), 240
        )
    finally:
        drain_and_stop(query)
    for output in ChangeReceiver().receive(Deliver(number=1, changes=shop.receiver.changes)):
        if isinstance(output, MatchedChange):
            for kind in ("enter", "update", "leave"):
                for number in getattr(output, kind):
                    numbers[number].apply(kind, output.change)


@pytest.mark.parametrize("story", SINGLE, ids=str)
def test_the_pipeline_delivers_the_events_of_the_engine(story: Any, catalogue: Catalogue):
    for watch in catalogue.watches.get(story.title, []):
        ours = Counter(value_key(list(event)) for event in watch.events)
        theirs = Counter(value_key([event.type, event.match, event.prev]) for event in watch.watch.deltas)
        assert ours == theirs, watch.watch.text
    for text in catalogue.refused.get(story.title, []):
        assert any(words in text for words in ENGINE_ONLY), text


def test_most_stories_run_on_both_hosts(catalogue: Catalogue):
    """The list of refusals must not hide a regression."""
    compared = sum(len(watches) for watches in catalogue.watches.values())
    deltas = sum(len(watch.watch.deltas) for watches in catalogue.watches.values() for watch in watches)
    assert compared > 100
    assert deltas > 150

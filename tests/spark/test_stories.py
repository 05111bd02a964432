"""The same stories on both hosts: what the engine tells of one element, the pipeline tells of the graph's log."""

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
from tests.spark.story_log import AskedWatch, Recorded, record
from tests.stories.test_watch_stories import STORIES
from vedette.clock import SystemClock
from vedette.errors import SourceError, SubscriptionError
from vedette.pipeline.queries.changes import drain_and_stop, start_changes_query
from vedette.sources.graph.reader import GraphLogReader
from vedette.sources.images import decode_image
from vedette.sources.records import Source
from vedette.subscriptions.collection_watch import CollectionWatch, parse_collection_watch
from vedette.subscriptions.registry.registry import SubscriptionRequest
from vedette.subscriptions.spec import SubscriptionSpec
from vedette.testing.receiver import IngestReceiver
from vedette.transport.ingest_messages import Deliver, DeliveredChange
from vedette.transport.receiver import ChangeReceiver, MatchedChange
from vedette.watch.delta import value_key

MEMORY = next((path for path in ("/dev/shm",) if Path(path).is_dir()), None)
SINGLE = [story for story in STORIES if story.scope == "node"]
ENGINE_ONLY = (
    "an expression of the kind",  # now(), what is computed
    "an aggregate without a window",
    "COLLECT over an external collection needs a limit",
    "DISTINCT",
    "without the name of a collection",  # any
    "computed value in RETURN",
    "no longer reaches back",  # a log that the story cuts off
)
"""Words of refusals: what needs more than one document at a time, or the engine's clock."""


@dataclass
class Asked:
    """A watch of a story at the pipeline, and what it is told."""

    watch: AskedWatch
    form: CollectionWatch
    told: list[tuple[str, Any, Any]] = field(default_factory=list)

    def tell(self, kind: str, change: DeliveredChange) -> None:
        before, after = (
            self.form.row(change.key, decode_image(image), change.collection) if image is not None else None
            for image in (change.before, change.after)
        )
        match kind:
            case "enter":
                self.told.append(("added", after, None))
            case "update":
                self.told.append(("changed", after, before))
            case _:
                self.told.append(("removed", before, None))


@dataclass
class Catalogue:
    stories: dict[str, Recorded] = field(default_factory=dict)
    asked: dict[str, list[Asked]] = field(default_factory=dict)
    refused: dict[str, list[str]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def told(spark: Any) -> Iterator[Catalogue]:
    """All stories are told to engines, their logs read into one journal, all their watches asked of one stream."""
    home = Path(tempfile.mkdtemp(dir=MEMORY))  # 157 engines that wait for a disk would be most of the time
    shop = Shop(home, IngestReceiver(home / "in", secret="s"))
    found, numbers = Catalogue(), {}
    for number, story in enumerate(SINGLE):
        tenant = f"story{number}"
        recorded = found.stories[story.title] = record(story, home / tenant)
        try:
            boundary = read_log(shop, recorded, tenant)
        except SourceError as error:
            found.refused[story.title] = [error.text]
            continue
        for place, watch in enumerate(recorded.watches):
            if any(type_.startswith("_") for type_ in watch.types):
                continue  # Layer 0 is made when it is asked for, and in no log
            try:
                form = parse_collection_watch(watch.text, watch.params)
            except SubscriptionError as error:
                found.refused.setdefault(story.title, []).append(error.text)
                continue
            asked = Asked(watch, form)
            found.asked.setdefault(story.title, []).append(asked)
            numbers.update(
                dict.fromkeys(subscribe(shop, f"{tenant} {place}", watch, tenant, boundary), asked)
            )
    shop.compactor.publish()
    tell_all(spark, shop, numbers, home / "checkpoint")
    yield found
    shop.close()
    shutil.rmtree(home)


def read_log(shop: Shop, recorded: Recorded, tenant: str) -> int:
    """Append the whole log; returns the offset that the story's watches look back to."""
    source = Source(name=tenant, kind="graph", address=str(recorded.log), tenant=tenant, partitions=2)
    shop.journal.add_source(source)
    reader = GraphLogReader(source, shop.journal, SystemClock())
    shop.journal.append(tenant, [], f"{reader.epoch}:0")
    before = shop.journal.last_offset()
    while reader.poll(0.0)[0]:
        pass
    reader.close()
    rows = shop.journal.read(before, shop.journal.last_offset())
    early = [row.offset for row in rows if int(row.transaction.removeprefix("t")) <= recorded.beginning]
    return max(early, default=before)


def subscribe(shop: Shop, id: str, watch: AskedWatch, tenant: str, boundary: int) -> list[int]:
    """One subscription for each type that an element can really have."""
    form = SubscriptionSpec(kind="watch", source=watch.text, params=dict(watch.params))
    requests = [
        SubscriptionRequest(id=f"{id} {type_}", tenant=tenant, collection=type_, boundary=boundary, form=form)
        for type_ in watch.types
    ]
    return shop.registry.register("g1", requests, 3600)


def tell_all(spark: Any, shop: Shop, numbers: dict[int, Asked], checkpoint: Path) -> None:
    last = shop.journal.last_offset()
    query = start_changes_query(spark, shop.context, checkpoint, start=0)
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
                    numbers[number].tell(kind, output.change)


@pytest.mark.parametrize("story", SINGLE, ids=str)
def test_the_pipeline_tells_what_the_engine_tells(story: Any, told: Catalogue):
    for asked in told.asked.get(story.title, []):
        ours = Counter(value_key(list(event)) for event in asked.told)
        theirs = Counter(value_key([event.type, event.match, event.prev]) for event in asked.watch.deltas)
        assert ours == theirs, asked.watch.text
    for text in told.refused.get(story.title, []):
        assert any(words in text for words in ENGINE_ONLY), text


def test_most_stories_are_told_by_both(told: Catalogue):
    """Refusals may not grow into a habit."""
    compared = sum(len(watches) for watches in told.asked.values())
    deltas = sum(len(asked.watch.deltas) for watches in told.asked.values() for asked in watches)
    assert compared > 100
    assert deltas > 150

"""python -m benchmarks.pipeline.latency [--rate N] [--seconds N]: time from a journal append to a gateway."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np

from benchmarks.pipeline.shop import COLLECTION, Shop
from vedette.pipeline.queries.changes import drain_and_stop, start_changes_query
from vedette.pipeline.session import open_session
from vedette.pipeline.task import PipelineConfig
from vedette.sources.images import encode_image
from vedette.sources.journal.seam import open_journal
from vedette.sources.records import Source, SourceEvent
from vedette.subscriptions.index.compactor import Compactor
from vedette.subscriptions.registry.records import SubscriptionRequest
from vedette.subscriptions.registry.registry import SubscriptionRegistry
from vedette.subscriptions.spec import SubscriptionSpec
from vedette.testing.receiver import IngestReceiver

__all__: list[str] = []

APPENDS = 50
"""Appends per second; each has the same number of events."""


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline.latency")
    parser.add_argument("--rate", type=int, default=1_000, help="events a second")
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--subscriptions", type=int, default=10_000)
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), options.rate, options.seconds, options.subscriptions)


def run(data_directory: Path, rate: int, seconds: int, subscriptions: int) -> None:
    receiver = IngestReceiver(data_directory / "in", secret="s")
    journal = open_journal(data_directory)
    journal.add_source(Source(name="shop", kind="mongodb", address=""))
    registry = SubscriptionRegistry(data_directory)
    registry.acquire_lease("g", receiver.address, 3600)
    shop, chance = Shop(subscriptions), Random(3)
    requests = [
        SubscriptionRequest(
            id=str(n), tenant="default", collection=COLLECTION, boundary=0,
            spec=SubscriptionSpec(kind="cel", source=shop.source(n, chance)),
        )
        for n in range(subscriptions)
    ]  # fmt: skip
    everything = SubscriptionRequest(
        id="all",
        tenant="default",
        collection=COLLECTION,
        boundary=0,
        spec=SubscriptionSpec(kind="cel", source="true"),
    )
    registry.register("g", [*requests, everything], 3600)
    Compactor(registry, data_directory / "index").publish()
    config = PipelineConfig(
        journal_url=journal.address,
        registry_url=registry.address,
        index_folder=data_directory / "index",
        ingest_secret="s",
    )
    session = open_session(local_dir=data_directory / "spark", ui=False)
    query = start_changes_query(session, config, data_directory / "checkpoint", start=0)
    arrived: dict[int, float] = {}
    receiver.on_changes = lambda changes: arrived.update(
        {change.offset: time.perf_counter() for change in changes}
    )
    first = SourceEvent(
        event_id="first",
        collection=COLLECTION,
        key="k",
        created=True,
        after=encode_image({"n": 1}),
        time_ms=0,
    )
    journal.append("shop", [first], None)
    receiver.wait_for(lambda: bool(arrived), 120)  # Spark and its workers have started
    arrived.clear()
    sent: dict[int, float] = {}
    warm_up = 5
    begin = time.perf_counter()
    for number in range((seconds + warm_up) * APPENDS):
        events = [
            SourceEvent(
                event_id=f"{number}.{n}", collection=COLLECTION, key=f"k{chance.randrange(5_000)}", created=True,
                after=encode_image(shop.order(chance)), time_ms=0,
            )
            for n in range(rate // APPENDS)
        ]  # fmt: skip
        last = journal.append("shop", events, None).offset
        now = time.perf_counter()
        for offset in range(last - len(events) + 1, last + 1):
            sent[offset] = now
        time.sleep(max(0.0, begin + (number + 1) / APPENDS - now))
    receiver.wait_for(lambda: len(arrived) == len(sent), 60)
    counted = [offset for offset in sent if offset > warm_up * rate]
    delays = np.array([arrived[offset] - sent[offset] for offset in counted if offset in arrived])
    print(
        f"{rate} events/s, {subscriptions} subscriptions, {len(counted)} events: "
        f"p50 {1000 * np.median(delays):.0f} ms, "
        f"p99 {1000 * np.quantile(delays, 0.99):.0f} ms, lost {len(counted) - len(delays)}"
    )
    batches = [progress["durationMs"] for progress in query.recentProgress[-50:]]
    parts = {name: float(np.median([batch.get(name, 0) for batch in batches])) for name in batches[-1]}
    print(
        f"medians of the last {len(batches)} batches, ms: "
        + ", ".join(f"{n} {v:.0f}" for n, v in parts.items())
    )
    drain_and_stop(query)
    session.stop()


if __name__ == "__main__":
    main()

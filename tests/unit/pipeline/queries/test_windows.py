"""The windows query without Spark: journal ranges ▸ rows ▸ the state of each subscription, grouped as Spark does."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from vedette.pipeline.datasource import WindowsStreamReader, journal_options
from vedette.pipeline.queries.window_rows import SelectWindowRows
from vedette.pipeline.queries.windows import _encode_window_event, apply_rows
from vedette.pipeline.task import PipelineConfig
from vedette.pipeline.worker_cache import close_connections
from vedette.policy.collection_policies import ViewRule
from vedette.sources.images import decode_image, encode_image
from vedette.sources.journal.seam import open_journal
from vedette.sources.records import Source, SourceEvent
from vedette.subscriptions.index.compactor import Compactor
from vedette.subscriptions.registry.records import SubscriptionRequest
from vedette.subscriptions.registry.registry import SubscriptionRegistry
from vedette.subscriptions.spec import SubscriptionSpec
from vedette.subscriptions.windows.windowed_watch import WindowEvent
from vedette.testing import ManualClock

WINDOW_SECONDS = 0.05
NOW = datetime(2024, 1, 1, tzinfo=UTC)
ORDERS, RETURNS = "shop::orders", "shop::returns"


class Windows:
    def __init__(self, data_directory: Path) -> None:
        self.clock = ManualClock()
        self.journal = open_journal(data_directory, self.clock)
        self.journal.add_source(Source(name="shop", kind="mongodb", address="", partitions=2))
        self.registry = SubscriptionRegistry(data_directory, clock=self.clock)
        self.registry.acquire_lease("g", "here:1", 3600)
        self.compactor = Compactor(self.registry, data_directory / "index", self.clock)
        self.config = PipelineConfig(
            journal_url=self.journal.address,
            registry_url=self.registry.address,
            index_folder=data_directory / "index",
        )
        options = journal_options(self.config, start=0, shares=1, lateness_ms=0)
        self.stream = WindowsStreamReader(options)
        self.stream.clock = self.clock
        self.offset = self.stream.initialOffset()
        self.states: dict[int, bytes] = {}
        self.events: dict[int, list[dict[str, Any]]] = {}
        self.written = 0

    def write(self, collection: str, *documents: tuple[str, dict[str, Any] | None]) -> None:
        now = int(self.clock.now().timestamp() * 1000)
        events = []
        for key, document in documents:
            self.written += 1
            image = None if document is None else encode_image(document)
            events.append(
                SourceEvent(
                    event_id=str(self.written), collection=collection, key=key, after=image, time_ms=now
                )
            )
        self.journal.append("shop", events, None)

    def watch(self, text: str, *names: str, view: tuple[ViewRule, ...] | None = None) -> list[int]:
        union = text if len(names) > 1 else ""
        spec = SubscriptionSpec(kind="watch", source=text, time=self.clock.now(), view=view, union_id=union)
        boundary = self.journal.last_offset()
        requests = [
            SubscriptionRequest(
                id=f"{self.registry.count()} {name}",
                tenant="default",
                collection=name,
                boundary=boundary,
                spec=spec,
            )
            for name in names
        ]
        numbers = self.registry.register("g", requests, 3600)
        self.compactor.publish()
        return list(numbers)

    def step(self) -> None:
        end = self.stream.latestOffset(self.offset, self.stream.getDefaultReadLimit())
        if end == self.offset:
            return
        for part in self.stream.partitions(self.offset, end):
            by_subscription: dict[int, list[dict[str, Any]]] = {}
            for batch in SelectWindowRows(self.config)(self.stream.read(part)):
                for row in batch.to_pylist():
                    by_subscription.setdefault(row["subscription"], []).append(row)
            for number, rows in by_subscription.items():
                state, events = apply_rows(number, rows, self.states.pop(number, None))
                if state is not None:
                    self.states[number] = state
                self._receive(number, events)
        self.offset = end

    def _receive(self, number: int, rows: list[dict[str, Any]]) -> None:
        events = self.events.setdefault(number, [])
        for row in rows:
            if row["position"]:
                assert row["position"] == len(events) + 1
                events.append(decode_image(row["payload"]))

    def until(self, number: int, wanted: dict[str, Any]) -> None:
        """End windows until the latest event has this row."""
        for _ in range(20):
            self.clock.advance(WINDOW_SECONDS)
            self.step()
            for event in self.events.get(number, [])[-1:]:
                if (event.get("match") or event["matches"][0]) == wanted:
                    return
        raise AssertionError(self.events.get(number, [])[-1:])


@pytest.fixture
def windows(tmp_path: Path) -> Iterator[Windows]:
    windows = Windows(tmp_path)
    yield windows
    close_connections()
    windows.registry.close()
    windows.journal.close()


def test_a_union_has_one_state(windows: Windows):
    windows.write(ORDERS, ("a", {"n": 1}), ("b", {"n": 2}))
    windows.write(RETURNS, ("a", {"n": 10}))
    text = (
        f"WATCH o: {ORDERS} | {RETURNS} WHERE o.n > 0 [window: tumbling(50ms)] "
        "RETURN COUNT(*) AS n, SUM(o.n) AS sum, COLLECT(o.n)[limit: 3] AS them"
    )
    leader, other = windows.watch(text, ORDERS, RETURNS)
    windows.until(leader, {"n": 3, "sum": 13, "them": [1, 2, 10]})
    windows.write(RETURNS, ("z", {"n": 20}))
    windows.write(ORDERS, ("a", {"n": 0}))
    windows.until(leader, {"n": 3, "sum": 32, "them": [2, 10, 20]})
    windows.write(RETURNS, ("a", None))
    windows.until(leader, {"n": 2, "sum": 22, "them": [2, 20]})
    assert windows.events[leader][0]["type"] == "initial"
    assert other not in windows.events
    windows.registry.unregister("g", [f"0 {ORDERS}", f"0 {RETURNS}"])
    windows.compactor.publish()
    for _ in range(20):
        windows.step()
    assert leader not in windows.states, "the state is removed"


def test_windows_count_visible_documents_and_values(windows: Windows):
    """Hidden documents do not count, hidden values are null, and a change of a hidden value is no event."""
    view = (
        ViewRule(allow=True, attribute=None, variable="o", condition="o.owner = 1"),
        ViewRule(allow=False, attribute="n", variable="o", condition="o.locked"),
    )
    windows.write(
        ORDERS,
        ("a", {"n": 1, "owner": 1}),
        ("b", {"n": 2, "owner": 2}),
        ("c", {"n": 4, "owner": 1, "locked": True}),
    )
    counted = (
        f"WATCH o: {ORDERS} [window: tumbling(50ms)] "
        "RETURN COUNT(*) AS n, SUM(o.n) AS sum, COLLECT(o.n)[limit: 5] AS all"
    )
    listed = f"WATCH o: {ORDERS} [window: tumbling(50ms), initial: none] RETURN o.id, o.n"
    (count,), (events,) = (
        windows.watch(counted, ORDERS, view=view),
        windows.watch(listed, ORDERS, view=view),
    )
    windows.until(count, {"n": 2, "sum": 1, "all": [1, None]})
    windows.write(
        ORDERS,
        ("c", {"n": 5, "owner": 1, "locked": True}),  # hidden
        ("b", {"n": 3, "owner": 2}),  # invisible
        ("d", {"n": 7, "owner": 1}),
    )
    windows.until(count, {"n": 3, "sum": 8, "all": [1, None, 7]})
    windows.write(ORDERS, ("b", {"n": 3, "owner": 1}), ("c", {"n": 5, "owner": 1}))
    windows.until(count, {"n": 4, "sum": 16, "all": [1, 3, 5, 7]})
    seen = [
        (e["type"], e["match"]["o.id"], e["match"]["o.n"])
        for w in windows.events[events]
        for e in w["events"]
    ]
    assert sorted(seen) == [("added", "b", 3), ("added", "d", 7), ("changed", "c", 5)]


@pytest.mark.parametrize(
    ("event", "dropped"),
    [
        (WindowEvent(1, "window", NOW, NOW, events=[{"match": {"o": "x" * 9_000_000}}] * 2), 2),
        (WindowEvent(1, "initial", NOW, NOW, matches=[{"o": "x" * 9_000_000}] * 3), 3),
        (
            WindowEvent(
                1, "added", NOW, NOW, match={"o": functools.reduce(lambda d, _: [d], range(100), list[Any]())}
            ),
            1,
        ),
    ],
    ids=["large", "many", "deep"],
)
def test_an_event_that_cannot_be_encoded_is_dropped_and_counted(event: WindowEvent, dropped: int):
    """It must not fail the batch, because every retry would fail too, for all subscriptions."""
    encoded = decode_image(_encode_window_event(event))
    assert encoded == {"type": event.type, "window_start": NOW, "window_end": NOW, "dropped": dropped}

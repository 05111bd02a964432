"""External collections over the network: journal ▸ stages of the pipeline ▸ ingest link ▸ gateway ▸ client.

The pipeline runs without Spark (`tests/support/local_pipeline.py`); `tests/spark` runs it on Spark.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

from tests.support.breaking_proxy import BreakingLine
from tests.support.gateway_server import Serving
from tests.support.local_pipeline import LocalPipeline
from tests.support.signing import KEYS, token
from vedette.change import Event
from vedette.client.connection import send_message
from vedette.client.session import connect
from vedette.client.watch import RemoteWatch
from vedette.console.metrics import metrics_text, service_metrics
from vedette.errors import FilterError, SourceError, SubscriptionError, WatchError
from vedette.gateway.collections import registry_thread
from vedette.sources.images import encode_image
from vedette.sources.journal.seam import open_journal
from vedette.sources.records import Source, SourceEvent
from vedette.subscriptions.registry.registry import SubscriptionRegistry
from vedette.transport import ingest_client as ingest_link
from vedette.transport.ingest_messages import PartitionStatus, Status, WindowResult


class Shop:
    """A server with one source, whose documents the test writes."""

    def __init__(self, directory: Path, server: Serving, store: str | None = None) -> None:
        self.server = server
        self.journal = open_journal(store or directory)
        self.journal.add_source(Source(name="shop", kind="mongodb", address="mongodb://there", partitions=3))
        self.pipeline = LocalPipeline(directory, secret=server.service.secret.hex(), store=store)
        self._written = 0

    def write(self, *documents: tuple[str, dict[str, Any] | None], collection: str = "shop::orders") -> None:
        events = []
        for key, document in documents:
            self._written += 1
            events.append(
                SourceEvent(
                    event_id=str(self._written),
                    collection=collection,
                    key=key,
                    after=None if document is None else encode_image(document),
                    time_ms=self._written,
                )
            )
        self.journal.append("shop", events, None)

    async def settle(self) -> None:
        await asyncio.to_thread(self.pipeline.run_until_idle)

    def close(self) -> None:
        self.pipeline.close()
        self.journal.close()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with Serving(tmp_path / "data") as server:
        shop = Shop(tmp_path / "data", server)
        yield shop
        shop.close()


def run(body: Any, *arguments: Any) -> None:
    asyncio.run(asyncio.wait_for(body(*arguments), 240))


async def take(watch: RemoteWatch, count: int) -> list[Event]:
    events = []
    for _ in range(count):
        event = await watch.next(timeout=60)
        assert event is not None
        events.append(event)
    return events


def delivered(events: list[Event]) -> list[tuple[str, Any]]:
    return [(event.type, event.match) for event in events]


async def from_the_source_to_the_client(shop: Shop) -> None:
    shop.write(("a", {"status": "open", "total": 50}), ("b", {"status": "paid", "total": 120}))
    async with connect(shop.server.url) as c:
        watch = await c.watch(
            "WATCH o: shop::orders WHERE o.total > $least RETURN o.id, o.total", least=100
        ).ready()
        (initial,) = await take(watch, 1)
        assert initial.matches == ({"o.id": "b", "o.total": 120},)
        shop.write(("a", {"status": "open", "total": 101}), ("b", {"status": "done", "total": 120}))
        shop.write(("a", {"status": "open", "total": 102}), ("b", {"status": "done", "total": 1}))
        shop.write(("a", None))
        await shop.settle()
        events = await take(watch, 4)
        by_key = {key: [e for e in events if e.match is not None and e.match["o.id"] == key] for key in "ab"}
        assert delivered(by_key["a"]) == [
            ("added", {"o.id": "a", "o.total": 101}),
            ("changed", {"o.id": "a", "o.total": 102}),
            ("removed", {"o.id": "a", "o.total": 102}),
        ]
        assert by_key["a"][1].prev == {"o.id": "a", "o.total": 101}
        assert delivered(by_key["b"]) == [("removed", {"o.id": "b", "o.total": 120})]
        assert [event.position for event in (initial, *events)] == [1, 2, 3, 4, 5]
        figures = metrics_text(service_metrics(shop.server.service)).decode()
        assert "vedette_collection_streams 1.0" in figures
        assert "vedette_collection_events_total 4.0" in figures
        await watch.cancel()
        shop.write(("c", {"total": 1000}))
        await shop.settle()
        while shop.pipeline.registry.count():  # noqa: ASYNC110 - another process would have to tell
            await asyncio.sleep(0.01)


def test_a_source_change_reaches_the_client(shop: Shop):
    run(from_the_source_to_the_client, shop)


async def documents(shop: Shop) -> None:
    shop.write(("a", {"n": 1}), ("b", {"n": 2}))
    async with connect(shop.server.url) as c:
        watch = await c.documents("shop::orders", filter="doc.n > 1").ready()
        (initial,) = await take(watch, 1)
        assert initial.matches == ({"id": "b", "_type": "shop::orders", "n": 2},)
        shop.write(("a", {"n": 5}))
        await shop.settle()
        shop.write(("b", {"n": 0}), ("a", None))
        await shop.settle()
        entered, *gone = await take(watch, 3)
        assert entered.match == {"id": "a", "_type": "shop::orders", "n": 5}
        assert {
            (event.type, event.attributes["delta"]["reason"], event.attributes["delta"]["id"])
            for event in gone
        } == {
            ("delete", "leave", "shop::orders/b"),
            ("delete", "delete", "shop::orders/a"),
        }


def test_documents(shop: Shop):
    run(documents, shop)


WATCH = "WATCH o: shop::orders WHERE o.n >= 5 RETURN o.id, o.n"


class Follower:
    """A client's state, built from its events alone."""

    def __init__(self, watch: RemoteWatch, least: int, *, causal: bool = False) -> None:
        self.watch, self.least, self.causal = watch, least, causal
        self.rows: dict[str, int] = {}
        self.ticks: list[int] = []

    async def follow(self, last: str) -> dict[str, int]:
        """Take events until the document of this key is in the picture."""
        while last not in self.rows:
            event = await self.watch.next(timeout=60)
            assert event is not None, self.rows
            self.take(event)
        return self.rows

    def take(self, event: Event) -> None:
        self.ticks.append(event.tick)
        if event.type in ("initial", "resync"):
            self.rows = {row["o.id"]: row["o.n"] for row in event.matches or ()}
            return
        assert event.match is not None
        key, n = event.match["o.id"], event.match["o.n"]
        if event.type == "added":
            assert key not in self.rows, "a repeat reached the client"
            self.rows[key] = n
        elif event.type == "changed":
            assert event.prev is not None
            assert self.rows[key] == event.prev["o.n"], "something before this was lost"
            self.rows[key] = n
        else:
            assert self.rows.pop(key) == n


async def whatever_happens(shop: Shop, seed: int) -> None:
    """Subscribers come, join and go; batches die in the middle and run again; lines break; a picture stays true."""
    rng = Random(seed)
    documents: dict[str, int] = {}
    followers: list[Follower] = []

    def write() -> None:
        batch: list[tuple[str, dict[str, Any] | None]] = []
        for _ in range(rng.randint(1, 12)):
            key = f"k{rng.randrange(8)}"
            if rng.random() < 0.2:
                documents.pop(key, None)
                batch.append((key, None))
            else:
                documents[key] = rng.randrange(10)
                batch.append((key, {"n": documents[key], "noise": rng.random()}))
        shop.write(*batch)

    async with (
        BreakingLine(shop.server.port) as line,
        connect(line.url) as broken,
        connect(shop.server.url) as whole,
    ):
        for _ in range(60):
            match rng.choice(
                ("write", "write", "batch", "batch", "hidden", "die", "come", "come", "go", "cut")
            ):
                case "write":
                    write()
                case "batch":
                    await asyncio.to_thread(shop.pipeline.step)
                case "hidden":
                    await asyncio.to_thread(shop.pipeline.step, publish=False)
                case "die":
                    write()
                    shop.pipeline.crash_after_changes = rng.randint(1, 4)
                    await asyncio.to_thread(shop.pipeline.step)
                case "come":
                    least, order = rng.choice((0, 5)), rng.choice(("", " [ordering: causal]"))
                    client = rng.choice((broken, whole))
                    text = f"WATCH o: shop::orders WHERE o.n >= {least}{order} RETURN o.id, o.n"
                    followers.append(Follower(client.watch(text), least, causal=bool(order)))
                case "go":
                    followers.append(Follower(whole.watch(WATCH), 5))
                    await followers[-1].watch.ready()
                    await followers.pop().watch.cancel()
                case "cut":
                    line.cut()
        await asyncio.gather(*(follower.watch.ready() for follower in followers))
        await shop.settle()
        documents["end"] = 99
        shop.write(("end", {"n": 99}))
        await shop.settle()
        for follower in followers:
            expected = {key: n for key, n in documents.items() if n >= follower.least}
            assert await follower.follow("end") == expected
            if follower.causal:
                assert follower.ticks == sorted(follower.ticks)


@pytest.mark.parametrize("seed", range(3))
def test_every_client_state_stays_correct_under_random_faults(shop: Shop, seed: int):
    run(whatever_happens, shop, seed)


async def refusals(shop: Shop) -> None:
    async with connect(shop.server.url) as c:
        with pytest.raises(SourceError, match="E6103"):
            await c.watch("WATCH o: store::orders RETURN o").ready()
        for text in (
            "WATCH o: shop::orders, p: shop::people RETURN o",
            "WATCH o: shop::orders [mode: consume] RETURN o",
            "WATCH o: shop::orders [window: tumbling(10s)] RETURN COLLECT(o.id)",
            "WATCH o: shop::orders RETURN COUNT(*)",
        ):
            with pytest.raises(SubscriptionError, match="E6204"):
                await c.watch(text).ready()


def test_unsupported_collection_watches_are_refused(shop: Shop):
    run(refusals, shop)


async def sharing(shop: Shop) -> None:
    """Equal subscriptions are one at the registry; another database's are not there at all."""
    shop.write(("a", {"n": 7}))
    async with connect(shop.server.url) as one, connect(shop.server.url) as two:
        watches = [await c.watch(WATCH).ready() for c in (one, two, two)]
        watches.append(await one.watch("WATCH o:shop::orders WHERE o.n >= $n RETURN o.id, o.n", n=5).ready())
        assert shop.pipeline.registry.count() == 1
        shop.write(("b", {"n": 8}))
        await shop.settle()
        for watch in watches:
            assert [e.type for e in await take(watch, 2)] == ["initial", "added"]
    async with connect(shop.server.url, database="other") as c:
        with pytest.raises(SourceError, match="E6103"):
            await c.watch(WATCH).ready()


def test_equal_collection_subscriptions_share_a_stream(shop: Shop):
    run(sharing, shop)


async def union(shop: Shop) -> None:
    shop.write(("a", {"n": 7}))
    async with connect(shop.server.url) as c:
        watch = await c.watch("WATCH o: shop::orders | shop::returns WHERE o.n > 1 RETURN o").ready()
        shop.write(("a", {"n": 8}), collection="shop::returns")
        await shop.settle()
        initial, added = await take(watch, 2)
        assert initial.matches == ({"o": {"id": "a", "_type": "shop::orders", "n": 7}},)
        assert added.match == {"o": {"id": "a", "_type": "shop::returns", "n": 8}}


def test_union(shop: Shop):
    run(union, shop)


async def resync(shop: Shop, lose: Callable[[], None]) -> None:
    """Each subscriber gets one resync, subscribes again, and misses no later event."""
    shop.write(("a", {"n": 7}))
    async with connect(shop.server.url) as c:
        watch = await c.watch(WATCH).ready()
        shop.write(("b", {"n": 8}))
        await shop.settle()
        assert [e.type for e in await take(watch, 2)] == ["initial", "added"]
        lose()
        await shop.settle()
        again, initial = await take(watch, 2)
        assert (again.type, initial.type) == ("resync", "initial")
        assert initial.matches is not None
        shop.write(("c", {"n": 9}))
        await shop.settle()
        assert delivered(await take(watch, 1)) == [("added", {"o.id": "c", "o.n": 9})]
        assert watch.poll() == []


def test_a_stale_source_requires_a_resync(shop: Shop):
    run(resync, shop, lambda: shop.journal.set_state("shop", "stale", "the slot is gone"))


def test_a_new_epoch_requires_a_resync(shop: Shop):
    run(resync, shop, lambda: shop.journal.set_state("shop", "live", "the slot is gone", new_epoch=True))


def test_a_lost_lease_requires_a_resync(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registry_thread, "LEASE_SECONDS", 0.3)

    def lose() -> None:
        (gateway,) = shop.pipeline.registry.gateways()
        shop.pipeline.registry.release_lease(gateway.name)

    run(resync, shop, lose)


async def removed(shop: Shop) -> None:
    async with connect(shop.server.url) as c:
        watch = await c.watch(WATCH).ready()
        assert (await take(watch, 1))[0].type == "initial"
        shop.journal.remove_source("shop")
        assert await watch.next(timeout=60) is None
        assert watch.status == "cancelled"
        assert [error.code for error in watch.errors()] == ["E6103"]


def test_removing_a_source_ends_its_streams(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registry_thread, "LEASE_SECONDS", 0.3)
    run(removed, shop)


async def windows(shop: Shop) -> None:
    """What the pipeline's windows say passes through; repeats are dropped, and equal watches are not one."""
    text = "WATCH o: shop::orders [window: tumbling(10s)] RETURN COUNT(*) AS n"
    async with connect(shop.server.url) as c:
        watches = [await c.watch(text).ready() for _ in range(2)]
        assert shop.pipeline.registry.count() == 2
        end = datetime(2026, 1, 1, 0, 0, 10, tzinfo=UTC)
        about: dict[str, Any] = {"window_start": end - timedelta(seconds=10), "window_end": end}
        rows: list[dict[str, Any]] = [
            {"type": "initial", "matches": [{"n": 1}]},
            {"type": "changed", "match": {"n": 2}, "prev": {"n": 1}},
        ]
        delivered = [
            WindowResult(subscription=number, position=position, payload=encode_image(row | about))
            for number in (1, 2)
            for position, row in enumerate(rows, 1)
        ]
        (gateway,) = shop.pipeline.registry.gateways()
        link = ingest_link.open_client(gateway.address, shop.server.service.secret.hex(), "test")
        for _ in range(2):
            link.send_window_events(delivered)
            await asyncio.to_thread(link.wait_until_accepted)
        link.close()
        for watch in watches:
            first, second = await take(watch, 2)
            assert (first.type, first.matches, first.window_end) == ("initial", ({"n": 1},), end)
            assert (second.type, second.match, second.prev) == ("changed", {"n": 2}, {"n": 1})
            assert watch.poll() == []


def test_windows(shop: Shop):
    run(windows, shop)


def test_a_shared_store_and_remote_executors(tmp_path: Path, postgres_url: str):
    """Journal and registry in PostgreSQL, deliveries over TCP: as with a Spark cluster."""
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("CREATE DATABASE shared_store")
    store = postgres_url.replace("/postgres?", "/shared_store?")
    settings: dict[str, Any] = {"pipeline_store": store, "ingest_address": "127.0.0.1:0"}
    with Serving(tmp_path / "data", **settings) as server:
        shop = Shop(tmp_path / "data", server, store)
        run(from_the_source_to_the_client, shop)
        (gateway,) = shop.pipeline.registry.gateways()
        assert gateway.address.startswith("127.0.0.1:")
        shop.close()
    registry = SubscriptionRegistry(store)
    assert registry.gateways() == [], "it released its lease"
    registry.close()


async def who_asks(shop: Shop, ada: str, grace: str) -> None:
    """`request.auth` is bound at subscription; requests that policies deny are refused."""
    shop.write(("a", {"owner": ada}), ("b", {"owner": grace}))
    mine = "doc.owner == request.auth.userId"
    async with (
        connect(
            shop.server.url, database="default", token=token(tenant="default", admin=False, sub=ada)
        ) as one,
        connect(
            shop.server.url, database="default", token=token(tenant="default", admin=False, sub=grace)
        ) as two,
    ):
        watches = [await c.documents("shop::orders", filter=mine).ready() for c in (one, two)]
        assert shop.pipeline.registry.count() == 2
        shop.write(("c", {"owner": ada}), ("d", {"owner": grace}), ("e", {"owner": "nobody"}))
        await shop.settle()
        for watch, keys in zip(watches, ("ac", "bd"), strict=True):
            initial, entered = await take(watch, 2)
            assert initial.matches is not None
            assert entered.match is not None
            assert [row["id"] for row in (*initial.matches, entered.match)] == list(keys)
            assert watch.poll() == []
        shop.server.vedette.default.define("ontology Rules { policy all: ON MATCH(p: Person) ALLOW IF true }")
        with pytest.raises(WatchError, match="E8001"):
            await one.watch(WATCH).ready()


def test_the_requester_is_part_of_the_stream_key(tmp_path: Path):
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [jwk for _, jwk in KEYS.values()]}))
    with Serving(tmp_path / "data", auth_keys=str(tmp_path / "keys.json")) as server:
        server.vedette.default.define("node Person { name: String }")
        with server.vedette.default.session() as session:
            people = [
                session.execute("SPAWN p: Person { name = $name } RETURNING id", name=name).rows[0][0]
                for name in ("Ada", "Grace")
            ]
        shop = Shop(tmp_path / "data", server)
        run(who_asks, shop, *people)
        shop.close()


async def shedding(shop: Shop) -> None:
    """Low-priority streams may be skipped while a partition lags, and resync afterwards."""
    shop.write(("a", {"n": 7}))
    async with connect(shop.server.url) as c:
        normal, low = [await c.watch(WATCH, priority=priority).ready() for priority in ("normal", "low")]
        for watch in (normal, low):
            assert (await take(watch, 1))[0].type == "initial"
        (gateway,) = shop.pipeline.registry.gateways()
        link = ingest_link.open_client(gateway.address, shop.server.service.secret.hex(), "test")
        for state in ("live", "shedding", "live"):
            parts = [
                PartitionStatus(partition=part.id, epoch=part.epoch, state=state)
                for part in shop.journal.partitions("shop")
            ]
            link.send(Status(partitions=parts))
        assert [event.type for event in await take(low, 2)] == ["resync", "initial"]
        assert normal.poll() == []
        link.close()


def test_low_priority_streams_resync_after_shedding(shop: Shop):
    run(shedding, shop)


async def shedding_already(shop: Shop) -> None:
    """A new gateway has received no status yet; it reads the delivery modes from the registry."""
    shop.write(("a", {"n": 7}))
    for partition in shop.journal.partitions("shop"):
        shop.pipeline.registry.set_mode(partition.id, "shedding")
    async with connect(shop.server.url) as c:
        low = await c.watch(WATCH, priority="low").ready()
        assert [event.type for event in await take(low, 1)] == ["initial"]
        await shop.settle()  # the first word about the partitions: they are live
        assert [event.type for event in await take(low, 2)] == ["resync", "initial"]


def test_low_priority_streams_opened_during_shedding_resync_after_it(shop: Shop):
    run(shedding_already, shop)


async def larger_filters(shop: Shop) -> None:
    """Limits are the gateway's: what it accepted, the pipeline takes."""
    shop.write(("a", {"n": 7}))
    async with connect(shop.server.url) as c:
        with pytest.raises(FilterError, match="E1202"):
            await c.documents("shop::orders", filter=f"doc.n in {list(range(401))}").ready()
        watch = await c.documents("shop::orders", filter=f"doc.n in {list(range(400))}").ready()
        shop.write(("b", {"n": 399}), ("c", {"n": 400}))
        await shop.settle()
        initial, entered = await take(watch, 2)
        assert [row["id"] for row in initial.matches or ()] == ["a"]
        assert (entered.match or {}).get("id") == "b"


def test_filter_limits_follow_the_settings(tmp_path: Path):
    with Serving(tmp_path / "data", max_filter_items=400) as server:
        shop = Shop(tmp_path / "data", server)
        run(larger_filters, shop)
        shop.close()


async def subscribed_and_left(shop: Shop) -> None:
    shop.write(("a", {"total": 50}))
    async with connect(shop.server.url) as c:
        for snapshot in (False, True):
            payload = {"collection": "shop::orders", "sendSnapshot": snapshot}
            for _ in range(40):
                for name in ("s", "t"):
                    message = {"type": "subscribe", "id": name, "payload": payload}
                    await send_message(await c._connected(), message)
                await c.request("unsubscribe", {"id": "s"})
        await c.request("unsubscribe", {"id": "t"})
        await c.execute("MATCH w: _Watch RETURN COUNT(*)")
        (connection,) = shop.server.service.router.connections.values()
        while connection._pending:  # noqa: ASYNC110 - figures of another thread
            await asyncio.sleep(0.02)


def test_a_subscriber_that_leaves_before_its_registration_gets_no_reply(shop: Shop):
    """Each request is answered or given up: 256 that are neither would keep a connection from asking anything."""
    run(subscribed_and_left, shop)

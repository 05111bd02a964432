"""The windowed subscriptions of each index version."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from vedette.subscriptions.index.change_batch import DocumentChange, ImageBatch
from vedette.subscriptions.index.compactor import Compactor
from vedette.subscriptions.index.matcher import match_segments
from vedette.subscriptions.index.versions import open_version
from vedette.subscriptions.registry.records import SubscriptionRequest
from vedette.subscriptions.registry.registry import SubscriptionRegistry
from vedette.subscriptions.spec import SubscriptionSpec
from vedette.subscriptions.windows.windowed_subscriptions import windowed_subscriptions

MADE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PLAIN = "WATCH o: shop::orders WHERE o.n > $least RETURN o.n"
TUMBLING = "WATCH o: shop::orders WHERE o.n > $least [window: tumbling(5s)] RETURN o.n"
SLIDING = "WATCH o: shop::orders WHERE o.n > $least [window: sliding(5s, 1s)] RETURN COUNT(*) AS n"


def test_window_is_part_of_the_shape_and_its_start_a_constant(tmp_path: Path):
    registry = SubscriptionRegistry(tmp_path)
    registry.acquire_lease("g", "here:1", 60)
    compactor = Compactor(registry, tmp_path / "index")

    def subscribe(id: str, source: str, least: int) -> int:
        spec = SubscriptionSpec(kind="watch", source=source, params={"least": least}, time=MADE)
        request_for = SubscriptionRequest(id=id, tenant="t", collection="shop::orders", boundary=7, spec=spec)
        (number,) = registry.register("g", [request_for], 60)
        return number

    plain, tumbling = subscribe("plain", PLAIN, 1), subscribe("tumbling", TUMBLING, 2)
    first = compactor.publish().version
    sliding = subscribe("sliding", SLIDING, 3)
    second = compactor.publish().version
    registry.unregister("g", ["tumbling"])
    third = compactor.publish().version
    found = [windowed_subscriptions(tmp_path / "index", version) for version in (0, first, second, third)]
    assert [set(each) for each in found] == [set(), {tumbling}, {tumbling, sliding}, {sliding}]
    one = found[1][tumbling]
    assert (one.created, one.boundary, one.collection, one.tenant) == (MADE, 7, "shop::orders", "t")
    assert one.watch.options.window.kind == "tumbling"
    assert found[3][sliding].watch.aggregates[0].name == "COUNT"
    # They have the same keys as other subscriptions; the constant with the start of windows is not part of a key.
    segments, ended = open_version(tmp_path / "index", second).collection("t", "shop::orders")
    change = DocumentChange(8, "k", "create", None, {"n": 3})
    images = ImageBatch("t", "shop::orders", [change])
    assert {match.subscription for match in match_segments(segments, ended, images)} == {plain, tumbling}
    registry.close()


def test_union_is_one_watch_with_its_smallest_number(tmp_path: Path):
    registry = SubscriptionRegistry(tmp_path)
    registry.acquire_lease("g", "here:1", 60)
    registry.acquire_lease("h", "there:1", 60)
    source = "WATCH o: shop::orders | shop::returns [window: tumbling(5s)] RETURN COUNT(*) AS n"

    def subscribe(gateway: str, union: str) -> list[int]:
        spec = SubscriptionSpec(kind="watch", source=source, time=MADE, union_id=union)
        requests = [
            SubscriptionRequest(id=f"{union}.{place}", tenant="t", collection=name, boundary=7, spec=spec)
            for place, name in enumerate(("shop::orders", "shop::returns"))
        ]
        return registry.register(gateway, requests, 60)

    made = [subscribe("g", "1"), subscribe("g", "2"), subscribe("h", "1")]
    version = Compactor(registry, tmp_path / "index").publish().version
    found = windowed_subscriptions(tmp_path / "index", version)
    assert {number: each.state_owner for number, each in found.items()} == {
        number: min(numbers) for numbers in made for number in numbers
    }
    assert {each.created for each in found.values()} == {MADE}
    registry.close()

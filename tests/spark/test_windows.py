"""The windows query on a real Spark: every event is delivered once, also after a killed worker and a restart."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from tests.spark.conftest import Shop
from vedette.clock import SystemClock
from vedette.pipeline.queries.changes import drain_and_stop
from vedette.pipeline.queries.windows import start_windows_query
from vedette.policy.collection_policies import ViewRule
from vedette.sources.images import decode_image
from vedette.subscriptions.registry.records import SubscriptionRequest
from vedette.subscriptions.spec import SubscriptionSpec
from vedette.transport.ingest_messages import Deliver, WindowResult
from vedette.transport.receiver import ChangeReceiver

LISTED = "WATCH o: shop::orders WHERE o.total > 0 [window: tumbling(500ms), initial: none] RETURN o.n"
COUNTED = (
    "WATCH o: shop::orders [window: tumbling(700ms)] RETURN o.status, COUNT(*) AS n, SUM(o.total) AS total"
)


BOTH = ("shop::orders", "shop::returns")
UNITED = (
    "WATCH o: shop::orders | shop::returns WHERE o.n < 3 [window: tumbling(600ms)] "
    "RETURN COUNT(*) AS n, COLLECT(o.n)[limit: 9] AS them"
)
VIEW = (
    ViewRule(allow=True, attribute=None, variable="o", condition="o.n != 2"),
    ViewRule(allow=False, attribute="total", variable="o", condition="o.n = 3"),
)


def watch(shop: Shop, id: str, text: str, view: tuple[ViewRule, ...] | None = None) -> int:
    names = BOTH if BOTH[1] in text else BOTH[:1]
    union = id if len(names) > 1 else ""
    spec = SubscriptionSpec(kind="watch", source=text, time=SystemClock().now(), view=view, union_id=union)
    boundary = shop.journal.last_offset()
    requests = [
        SubscriptionRequest(
            id=f"{id} {name}", tenant="default", collection=name, boundary=boundary, spec=spec
        )
        for name in names
    ]
    number, *_ = shop.registry.register("g1", requests, 3600)
    shop.compactor.publish()
    return number


def write(shop: Shop, *numbers: int, status: str = "paid") -> None:
    now = int(SystemClock().now().timestamp() * 1000)
    shop.write(*((f"k{n}", {"n": n, "total": n, "status": status}) for n in numbers), time_ms=now)


def delivered(shop: Shop, number: int) -> list[dict[str, Any]]:
    """Return the events of a subscription without duplicates. Positions must be consecutive."""
    outputs = ChangeReceiver().receive(Deliver(number=1, windows=list(shop.receiver.windows)))
    found = [event for event in outputs if isinstance(event, WindowResult) and event.subscription == number]
    assert [event.position for event in found] == list(range(1, len(found) + 1))
    return [decode_image(event.payload) for event in found]


def listed(shop: Shop, number: int) -> list[int]:
    return [inner["match"]["o.n"] for event in delivered(shop, number) for inner in event["events"]]


def counted(shop: Shop, number: int) -> dict[str, tuple[int, int]]:
    """Return the current groups."""
    groups: dict[str, tuple[int, int]] = {}
    for event in delivered(shop, number):
        for row in event.get("matches", [event.get("match")]):
            groups[row["o.status"]] = (row["n"], row["total"])
        if event["type"] == "removed":
            del groups[event["match"]["o.status"]]
    return groups


def test_windows_survive_a_killed_worker_and_a_restart(spark: Any, shop: Shop, tmp_path: Path):
    write(shop, 1, 2)  # before the watches: in the snapshot of the counts, in no list
    checkpoint = tmp_path / "windows"
    query = start_windows_query(spark, shop.config, checkpoint, lateness_ms=100)
    try:
        in_lists, in_counts = watch(shop, "listed", LISTED), watch(shop, "counted", COUNTED)
        in_view, in_both = watch(shop, "seen", COUNTED, VIEW), watch(shop, "united", UNITED)
        write(shop, 3, 4)
        assert shop.receiver.wait_for(lambda: listed(shop, in_lists) == [3, 4], 240)
        assert shop.receiver.wait_for(lambda: counted(shop, in_counts) == {"paid": (4, 10)}, 240)
        assert shop.receiver.wait_for(lambda: counted(shop, in_view) == {"paid": (3, 5)}, 240)
        os.kill(int(shop.receiver.senders[-1].split()[-1]), signal.SIGKILL)
        write(shop, 5)
        write(shop, 1, status="open")
        shop.write(("k0", {"n": 0}), ("k9", {"n": 9}), collection=BOTH[1])
        assert shop.receiver.wait_for(lambda: listed(shop, in_lists) == [3, 4, 5], 240)
        assert shop.receiver.wait_for(
            lambda: counted(shop, in_counts) == {"paid": (4, 14), "open": (1, 1)}, 240
        )
    finally:
        query.stop()  # possibly in the middle of a batch
    write(shop, 6)
    query = start_windows_query(spark, shop.config, checkpoint, lateness_ms=100)
    try:
        assert shop.receiver.wait_for(lambda: listed(shop, in_lists) == [3, 4, 5, 6], 240)
        assert shop.receiver.wait_for(lambda: counted(shop, in_counts)["paid"] == (5, 20), 240)
        assert shop.receiver.wait_for(
            lambda: counted(shop, in_view) == {"paid": (4, 15), "open": (1, 1)}, 240
        )
        assert shop.receiver.wait_for(
            lambda: delivered(shop, in_both)[-1]["match"] == {"n": 3, "them": [1, 2, 0]}, 240
        )
        types = [event["type"] for event in delivered(shop, in_counts)]
        assert types[0] == "initial"
        assert set(types[1:]) <= {"added", "changed"}
    finally:
        drain_and_stop(query)

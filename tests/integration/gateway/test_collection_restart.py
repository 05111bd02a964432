"""Streams over external collections continue after a graceful restart."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.gateway.test_collections import Follower, Shop, delivered, run, take
from tests.support.breaking_proxy import BreakingLine
from tests.support.gateway_server import Serving
from tests.support.signing import KEYS, token
from vedette.client.session import connect
from vedette.client.watch import RemoteWatch

NUMBERS = "WATCH o: shop::orders WHERE o.n >= 5 RETURN o.id, o.n"
CAUSAL = "WATCH o: shop::orders WHERE o.n >= 5 [ordering: causal] RETURN o.id, o.n"


class Restarting:
    """A shop whose server restarts, with a proxy that connects to the current one."""

    def __init__(self, folder: Path) -> None:
        (folder / "keys.json").write_text(json.dumps({"keys": [jwk for _, jwk in KEYS.values()]}))
        self.folder = folder
        self.server = self._serving()
        self.server.__enter__()
        self.shop = Shop(folder / "data", self.server)

    def _serving(self) -> Serving:
        return Serving(self.folder / "data", auth_keys=str(self.folder / "keys.json"))

    async def restart(self, line: BreakingLine) -> None:
        line.target = 1
        await asyncio.to_thread(self.server.stop)
        self.server = self._serving()
        await asyncio.to_thread(self.server.__enter__)
        line.target = self.server.port

    def close(self) -> None:
        self.shop.close()
        self.server.stop()


@pytest.fixture
def place(tmp_path: Path) -> Any:
    place = Restarting(tmp_path)
    yield place
    place.close()


async def told_of(place: Restarting, watch: RemoteWatch, count: int) -> list[tuple[str, Any]]:
    """So many events; batches run until they are here."""
    events: list[Any] = []
    for _ in range(100):
        event = await watch.next(timeout=0.2)
        if event is None:
            await place.shop.settle()
            continue
        events.append(event)
        if len(events) == count:
            break
    return delivered(events)


async def over_a_restart(place: Restarting) -> None:
    shop = place.shop
    shop.write(("a", {"n": 5}), ("b", {"n": 6}))
    async with (
        BreakingLine(place.server.port) as line,
        connect(line.url, database="default", token=token(tenant="default")) as c,
    ):
        watch, other = await c.watch(NUMBERS).ready(), await c.watch(CAUSAL).ready()
        documents = await c.documents("shop::orders", filter="doc.n >= 5").ready()
        for each in (watch, other, documents):
            assert len((await take(each, 1))[0].matches or ()) == 2
        shop.write(("a", {"n": 7}))
        await shop.settle()
        for each in (watch, other, documents):
            await take(each, 1)
        shop.write(("b", {"n": 1}))  # told to nobody yet
        await place.restart(line)
        shop.write(("a", {"n": 8}), ("c", {"n": 9}))
        for each in (watch, other):
            assert sorted(await told_of(place, each, 3), key=repr) == [
                ("added", {"o.id": "c", "o.n": 9}),
                ("changed", {"o.id": "a", "o.n": 8}),
                ("removed", {"o.id": "b", "o.n": 6}),
            ]
        kinds = [kind for kind, _ in await told_of(place, documents, 3)]
        assert sorted(kinds) == ["create", "delete", "update"]
        await shop.settle()
        assert watch.poll() == other.poll() == documents.poll() == []
        late = await c.watch(NUMBERS).ready()  # joins the stream that went on
        assert {row["o.id"]: row["o.n"] for row in (await take(late, 1))[0].matches or ()} == {"a": 8, "c": 9}


def test_collection_streams_continue_after_a_restart(place: Restarting):
    run(over_a_restart, place)


async def lost_meanwhile(place: Restarting) -> None:
    """The source loses its log while no server runs: clients resync, without a silent gap."""
    shop = place.shop
    shop.write(("a", {"n": 5}))
    async with (
        BreakingLine(place.server.port) as line,
        connect(line.url, database="default", token=token(tenant="default")) as c,
    ):
        follower = Follower(await c.watch(NUMBERS).ready(), 5)
        line.target = 1
        await asyncio.to_thread(place.server.stop)
        shop.journal.set_state("shop", "live", "the slot is gone", new_epoch=True)
        shop.write(("b", {"n": 6}))
        place.server = place._serving()
        await asyncio.to_thread(place.server.__enter__)
        line.target = place.server.port
        kinds = []
        while "b" not in follower.rows:
            event = await follower.watch.next(timeout=60)
            assert event is not None
            kinds.append(event.type)
            follower.take(event)
        assert kinds == ["initial", "resync", "initial"]
        assert follower.rows == {"a": 5, "b": 6}


def test_a_source_log_lost_during_a_restart_requires_a_resync(place: Restarting):
    run(lost_meanwhile, place)


async def rights_changed(place: Restarting) -> None:
    """Policies hold over a restart: what an actor was shown it is shown, and what not, not."""
    database = place.server.vedette.default
    database.define(
        "node Person { name: String } policy watching: ON META SPAWN(_Watch) ALLOW IF true "
        "policy own: ON MATCH(o: shop::orders) ALLOW IF o.owner = current_actor()"
    )
    ann = database.session().execute('SPAWN p: Person { name = "Ann" } RETURNING id').rows[0][0]
    shop = place.shop
    shop.write(("a", {"n": 5, "owner": ann}), ("b", {"n": 6}))
    async with (
        BreakingLine(place.server.port) as line,
        connect(line.url, database="default", token=token(tenant="default", admin=False, sub=ann)) as c,
    ):
        watch = await c.watch(NUMBERS).ready()
        assert (await take(watch, 1))[0].matches == ({"o.id": "a", "o.n": 5},)
        await place.restart(line)
        shop.write(("b", {"n": 7}), ("c", {"n": 8, "owner": ann}), ("a", {"n": 5, "owner": "x"}))
        assert sorted(await told_of(place, watch, 2), key=repr) == [
            ("added", {"o.id": "c", "o.n": 8}),
            ("removed", {"o.id": "a", "o.n": 5}),
        ]


def test_policies_apply_after_a_restart(place: Restarting):
    run(rights_changed, place)

"""Policies over external collections: what an actor sees, also after policies change."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.integration.gateway.test_collections import Shop, delivered, run, take
from tests.support.breaking_proxy import BreakingLine
from tests.support.gateway_server import Serving
from tests.support.signing import KEYS, token
from vedette.change import Event
from vedette.client.session import RemoteSession, connect
from vedette.client.watch import RemoteWatch
from vedette.errors import SubscriptionError, WatchError

NODES = """
node Person { name: String, admin: Bool = false, region: String = "north" }
node Member { who: Person, team: String }
"""
POLICIES = """
policy watching: ON META SPAWN(_Watch) ALLOW IF true
policy own:      ON MATCH(o: shop::orders) ALLOW IF o.owner = current_actor()
policy teams:    ON MATCH(o: shop::orders) ALLOW IF EXISTS(m: Member WHERE m.who = current_actor() AND m.team = o.team)
policy admins:   ON * ALLOW IF EXISTS(me: Person WHERE me = current_actor() AND me.admin)
policy locked:   ON MATCH(o: shop::orders) DENY IF o.locked
policy prices:   ON MATCH(o: shop::orders).price DENY IF o.region != current_actor().region
"""


class Office(Shop):
    """A shop with people, and policies about its orders."""

    def __init__(self, directory: Path, server: Serving, ontology: str = NODES + POLICIES) -> None:
        super().__init__(directory, server)
        self.database = server.vedette.default
        self.database.define(ontology)
        self.system = self.database.session()
        self.ann, self.bob = (self.person(name) for name in ("Ann", "Bob"))

    def person(self, name: str) -> str:
        id: str = self.system.execute("SPAWN p: Person { name = $name } RETURNING id", name=name).rows[0][0]
        return id

    def do(self, text: str, **params: Any) -> None:
        self.system.execute(text, params)

    def as_(self, actor: str, url: str | None = None) -> RemoteSession:
        return connect(
            url or self.server.url,
            database="default",
            token=token(tenant="default", admin=False, sub=actor),
        )


def serving(folder: Path) -> Serving:
    (folder / "keys.json").write_text(json.dumps({"keys": [jwk for _, jwk in KEYS.values()]}))
    return Serving(folder / "data", auth_keys=str(folder / "keys.json"))


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    with serving(tmp_path) as server:
        office = Office(tmp_path / "data", server)
        yield office
        office.close()


ORDERS = "WATCH o: shop::orders RETURN o.id, o.price"


def rows(event: Event) -> dict[str, Any]:
    return {row["o.id"]: row["o.price"] for row in event.matches or ()}


async def in_and_out(office: Office) -> None:
    """Rows come into sight and go out of it as documents change; hidden attributes are null."""
    ann, bob = office.ann, office.bob
    office.write(
        ("a", {"owner": ann, "price": 1, "region": "north"}),
        ("b", {"owner": bob, "price": 2, "region": "north"}),
        ("c", {"owner": ann, "price": 3, "region": "south"}),
        ("d", {"owner": ann, "price": 4, "region": "north", "locked": True}),
    )
    async with office.as_(ann) as c:
        watch = await c.watch(ORDERS).ready()
        (initial,) = await take(watch, 1)
        assert rows(initial) == {"a": 1, "c": None}
        office.write(
            ("b", {"owner": ann, "price": 2, "region": "north"}),  # comes into sight
            ("a", {"owner": bob, "price": 1, "region": "north"}),  # goes out of it
            ("c", {"owner": ann, "price": 9, "region": "south"}),  # changes where she does not look
        )
        await office.settle()
        office.write(("c", {"owner": ann, "price": 9, "region": "north"}))  # the price is shown
        office.write(("d", {"owner": ann, "price": 4, "region": "north"}))
        office.write(("a", None))  # what she does not see is deleted
        office.write(("b", None))
        await office.settle()
        events = await take(watch, 5)
        assert sorted(delivered(events), key=repr) == sorted(
            [
                ("added", {"o.id": "b", "o.price": 2}),
                ("removed", {"o.id": "a", "o.price": 1}),
                ("changed", {"o.id": "c", "o.price": 9}),
                ("added", {"o.id": "d", "o.price": 4}),
                ("removed", {"o.id": "b", "o.price": 2}),
            ],
            key=repr,
        )
        changed = next(event for event in events if event.type == "changed")
        assert changed.prev == {"o.id": "c", "o.price": None}
        assert watch.poll() == []


def test_rows_enter_and_leave_a_policy_view(office: Office):
    run(in_and_out, office)


async def documents(office: Office) -> None:
    """Filters see what their actor sees: a hidden field is missing, in conditions and in documents."""
    ann = office.ann
    office.write(
        ("a", {"owner": ann, "price": 1, "region": "north"}), ("c", {"owner": ann, "price": 3, "region": "x"})
    )
    async with office.as_(ann) as c:
        cheap = await c.documents("shop::orders", filter="!(doc.price > 5)").ready()
        every = await c.documents("shop::orders", filter="true").ready()
        assert [row["id"] for row in (await take(cheap, 1))[0].matches or ()] == ["a"]
        (snapshot,) = await take(every, 1)
        assert snapshot.matches == (
            {"id": "a", "_type": "shop::orders", "owner": ann, "price": 1, "region": "north"},
            {"id": "c", "_type": "shop::orders", "owner": ann, "region": "x"},
        )
        office.write(("c", {"owner": ann, "price": 4, "region": "x"}))  # nothing that she sees
        office.write(("c", {"owner": ann, "price": 4, "region": "x", "note": 1}))
        await office.settle()
        (event,) = await take(every, 1)
        assert event.match == {"id": "c", "_type": "shop::orders", "owner": ann, "region": "x", "note": 1}
        assert every.poll() == cheap.poll() == []


def test_filters_see_what_their_actor_sees(office: Office):
    run(documents, office)


async def refusals(office: Office, caplog: pytest.LogCaptureFixture) -> None:
    async with office.as_(office.ann) as c:
        with caplog.at_level(logging.WARNING, logger="vedette.audit"):
            for text in ("WATCH r: shop::returns RETURN r", "WATCH o: shop::orders | shop::returns RETURN o"):
                with pytest.raises(WatchError) as denied:
                    await c.watch(text).ready()
                assert denied.value.text == "Watch pattern denied"
                assert denied.value.fields == {}
        reasons = [getattr(record, "reason", "") for record in caplog.records]
        assert reasons == ["MATCH on shop::returns"] * 2
        for source in ("op == 'delete'", "before.price > 1", "size(doc) > 1"):
            with pytest.raises(SubscriptionError, match="E6204"):
                await c.documents("shop::orders", filter=source).ready()
        office.database.define(
            "policy far: ON MATCH(o: shop::returns) ALLOW IF "
            "EXISTS(m: Member WHERE m.team = o.team AND m.team != o.kind)"
        )
        caplog.clear()
        with pytest.raises(WatchError, match="E8001"):
            await c.watch("WATCH r: shop::returns RETURN r").ready()
        assert "the policy far joins documents" in getattr(caplog.records[-1], "reason", "")
        office.database.define("policy blind: ON MATCH(o: shop::orders).price DENY IF true")
        with pytest.raises(WatchError, match="E8001"):
            await c.watch(ORDERS).ready()
        await c.watch("WATCH o: shop::orders RETURN o.id").ready()
        office.database.define("policy nobody: ON META SPAWN(_Watch) DENY IF true")
        with pytest.raises(WatchError, match="E8001"):
            await c.watch("WATCH o: shop::orders RETURN o.id").ready()


def test_requests_that_policies_deny_are_refused_without_details(
    office: Office, caplog: pytest.LogCaptureFixture
):
    run(refusals, office, caplog)


async def rights_change(office: Office) -> None:
    """A granted right publishes `added`, a revoked one `removed`, and a newly visible attribute `changed`."""
    ann = office.ann
    office.write(
        ("a", {"owner": ann, "price": 1, "region": "north"}),
        ("b", {"team": "red", "price": 2, "region": "south"}),
        ("c", {"team": "blue", "price": 3, "region": "south"}),
    )
    async with office.as_(ann) as c:
        watch = await c.watch(ORDERS).ready()
        every = await c.documents("shop::orders", filter="true").ready()
        assert rows((await take(watch, 1))[0]) == {"a": 1}
        assert len((await take(every, 1))[0].matches or ()) == 1
        office.do('SPAWN m: Member { who = $who, team = "red" }', who=ann)
        assert delivered(await take(watch, 1)) == [("added", {"o.id": "b", "o.price": None})]
        (delta,) = await take(every, 1)
        assert delta.attributes["delta"]["reason"] == "enter"
        assert delta.match == {"id": "b", "_type": "shop::orders", "team": "red", "region": "south"}
        office.do('MATCH p: Person WHERE p.name = "Ann" SET p.region = "south"')
        changed, hidden = sorted(await take(watch, 2), key=lambda event: str(event.match), reverse=True)
        assert (changed.match, changed.prev) == ({"o.id": "b", "o.price": 2}, {"o.id": "b", "o.price": None})
        assert (hidden.match, hidden.prev) == ({"o.id": "a", "o.price": None}, {"o.id": "a", "o.price": 1})
        office.do('MATCH m: Member SET m.team = "blue"')
        assert delivered(await take(watch, 2)) == [
            ("removed", {"o.id": "b", "o.price": 2}),
            ("added", {"o.id": "c", "o.price": 3}),
        ]
        office.write(("b", {"team": "red", "price": 5, "region": "south"}), ("c", {"team": "red"}))
        await office.settle()
        assert delivered(await take(watch, 1)) == [("removed", {"o.id": "c", "o.price": 3})]
        office.database.define("policy later: ON MATCH(o: shop::orders) ALLOW IF o.price > 4")
        assert delivered(await take(watch, 1)) == [("added", {"o.id": "b", "o.price": 5})]
        office.do('MATCH p: Person WHERE p.name = "Bob" SET p.admin = true')
        office.do("MATCH m: Member KILL m")
        await office.settle()
        assert watch.poll() == []
        office.do('MATCH p: Person WHERE p.name = "Ann" KILL p')
        assert await watch.next(timeout=60) is None
        assert [error.code for error in watch.errors()] == ["E7003"]


def test_changed_policies_publish_the_difference_as_events(office: Office):
    run(rights_change, office)


async def beyond_documents(office: Office) -> None:
    """A policy that cannot be applied to documents ends the watch, because it could show too much."""
    office.write(("a", {"owner": office.ann, "price": 1, "region": "north"}))
    async with office.as_(office.ann) as c:
        watch = await c.watch(ORDERS).ready()
        assert rows((await take(watch, 1))[0]) == {"a": 1}
        office.database.define("policy odd: ON MATCH(x) DENY IF COUNT(m: Member WHERE m.team = x.team) > 9")
        assert await watch.next(timeout=60) is None
        assert [(error.code, error.fields) for error in watch.errors()] == [("E8001", {})]


def test_a_policy_that_cannot_be_applied_to_documents_ends_streams(office: Office):
    run(beyond_documents, office)


async def first_policy(office: Office) -> None:
    """Who watches already is bound by the first policy that is declared; the system context never is."""
    office.write(("a", {"owner": office.ann, "price": 1}), ("b", {"owner": office.bob, "price": 2}))
    async with (
        office.as_(office.ann) as c,
        connect(office.server.url, database="default", token=token(tenant="default")) as admin,
    ):
        watch, other = [await each.watch(ORDERS).ready() for each in (c, admin)]
        for each in (watch, other):
            assert rows((await take(each, 1))[0]) == {"a": 1, "b": 2}
        office.database.define(POLICIES)
        assert delivered(await take(watch, 2)) == [
            ("changed", {"o.id": "a", "o.price": None}),
            ("removed", {"o.id": "b", "o.price": 2}),
        ]
        assert other.poll() == []


def test_the_first_policy_applies_to_existing_streams(tmp_path: Path):
    with serving(tmp_path) as server:
        office = Office(tmp_path / "data", server, NODES)
        run(first_policy, office)
        office.close()


async def coming_back(office: Office) -> None:
    """A client that resumes does not get events that its revoked rights showed."""
    office.write(("a", {"owner": office.ann, "price": 1, "region": "north"}))
    office.do('SPAWN m: Member { who = $who, team = "red" }', who=office.ann)
    async with BreakingLine(office.server.port) as line, office.as_(office.ann, line.url) as c:
        watch = await c.watch(ORDERS).ready()
        assert rows((await take(watch, 1))[0]) == {"a": 1}
        line.target = 1  # no server listens there
        line.cut()
        office.write(("secret", {"team": "red", "price": 7, "region": "north"}))
        await office.settle()
        office.do("MATCH m: Member KILL m")
        office.write(("b", {"owner": office.ann, "price": 2, "region": "north"}))
        await office.settle()
        line.target = office.server.port
        seen: dict[str, Any] = {"a": 1}
        while "b" not in seen:
            event = await watch.next(timeout=0.2)
            if event is None:
                await office.settle()
                continue
            assert "secret" not in str(event)
            seen = rows(event) if event.matches is not None else {**seen, **_row(event)}
        assert seen == {"a": 1, "b": 2}


def _row(event: Event) -> dict[str, Any]:
    return {event.match["o.id"]: event.match["o.price"]} if event.match is not None else {}


def test_events_of_earlier_views_are_not_replayed(office: Office):
    run(coming_back, office)


class Onlooker:
    """An actor's state, built from its events; each event must fit the state before it."""

    def __init__(self, office: Office, watch: RemoteWatch, actor: str) -> None:
        self.office, self.watch, self.actor = office, watch, actor
        self.rows: dict[str, Any] = {}

    async def follow(self, expected_query: dict[str, Any]) -> None:
        """Until the picture is this one; partitions have no order among themselves, so it may be another on the way."""
        waited = 0
        while self.rows != expected_query:
            event = await self.watch.next(timeout=0.1)
            if event is None:  # it may have been registered again after the last batch
                waited += 1
                assert waited < 100, (self.rows, expected_query)
                await self.office.settle()
            else:
                self.take(event)

    def take(self, event: Event) -> None:
        if event.type in ("initial", "resync"):
            self.rows = rows(event)
            return
        assert event.match is not None
        key, price = event.match["o.id"], event.match["o.price"]
        match event.type:
            case "added":
                assert key not in self.rows, "a repeat reached the client"
            case "changed":
                assert event.prev is not None
                assert self.rows[key] == event.prev["o.price"], "something before this was lost"
            case _:
                assert self.rows.pop(key) == price
                return
        self.rows[key] = price


def shown(office: Office, actor: str, documents: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A fresh evaluation through the policies, written down once more."""
    found = office.system.execute("MATCH p: Person WHERE p.id = $id RETURN p.admin, p.region", id=actor).rows[
        0
    ]
    teams = {
        team
        for (team,) in office.system.execute(
            "MATCH m: Member WHERE m.who = #$id RETURN m.team", id=actor
        ).rows
    }
    admin, region = found
    return {
        key: None if document.get("region") != region else document.get("price")
        for key, document in documents.items()
        if (admin or document.get("owner") == actor or document.get("team") in teams)
        and not document.get("locked")
    }


async def whatever_happens(office: Office, seed: int) -> None:
    """Documents, rights, connections and batches change at random; an actor's state equals a fresh evaluation."""
    rng = Random(seed)
    documents: dict[str, dict[str, Any]] = {}
    people = (office.ann, office.bob)
    watching: list[Onlooker] = []

    def write() -> None:
        batch: list[tuple[str, dict[str, Any] | None]] = []
        for _ in range(rng.randint(1, 8)):
            key = f"k{rng.randrange(6)}"
            if rng.random() < 0.15:
                documents.pop(key, None)
                batch.append((key, None))
                continue
            documents[key] = {
                "owner": rng.choice((*people, "x")),
                "team": rng.choice(("red", "blue", None)),
                "region": rng.choice(("north", "south")),
                "locked": rng.random() < 0.2,
                "price": rng.randrange(4),
            }
            batch.append((key, documents[key]))
        office.write(*batch)

    def change_rights() -> None:
        who, team = rng.choice(people), rng.choice(("red", "blue"))
        match rng.randrange(5):
            case 0:
                office.do("SPAWN m: Member { who = $who, team = $team }", who=who, team=team)
            case 1:
                office.do("MATCH m: Member WHERE m.who = #$who KILL m", who=who)
            case 2:
                office.do(
                    "MATCH p: Person WHERE p.id = $who SET p.region = $region",
                    who=who,
                    region=rng.choice(("north", "south")),
                )
            case 3:
                admin = rng.random() < 0.3
                office.do("MATCH p: Person WHERE p.id = $who SET p.admin = $admin", who=who, admin=admin)
            case _:
                office.do('MATCH p: Person WHERE p.id = $who SET p.name = "another"', who=who)

    async with (
        BreakingLine(office.server.port) as line,
        office.as_(office.ann, line.url) as one,
        office.as_(office.bob) as two,
    ):
        clients = {office.ann: one, office.bob: two}
        for _ in range(50):
            match rng.choice(("write", "write", "batch", "batch", "rights", "rights", "die", "come", "cut")):
                case "write":
                    write()
                case "batch":
                    await asyncio.to_thread(office.pipeline.step)
                case "rights":
                    change_rights()
                case "die":
                    write()
                    office.pipeline.crash_after_changes = rng.randint(1, 3)
                    await asyncio.to_thread(office.pipeline.step)
                case "come" if len(watching) < 8:
                    actor = rng.choice(people)
                    order = rng.choice(("", " [ordering: causal]"))
                    text = f"WATCH o: shop::orders{order} RETURN o.id, o.price"
                    watching.append(Onlooker(office, clients[actor].watch(text), actor))
                case "cut":
                    line.cut()
        await asyncio.gather(*(onlooker.watch.ready() for onlooker in watching))
        await office.settle()
        for onlooker in watching:
            await onlooker.follow(shown(office, onlooker.actor, documents))
        await office.settle()
        for onlooker in watching:
            for event in onlooker.watch.poll():  # the picture may have been right before everything was read
                onlooker.take(event)
            await onlooker.follow(shown(office, onlooker.actor, documents))


@pytest.mark.parametrize("seed", range(3))
def test_every_client_state_equals_a_fresh_evaluation_with_policies(office: Office, seed: int):
    run(whatever_happens, office, seed)

"""Two tenants with the same names, ids and subscriptions: no data crosses."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.gateway_wire import Client, Wire

ONTOLOGY = "node Task { secret: String, n: Int = 0 }"
TENANTS = ("crimson", "azure")

subs = st.sampled_from(["s", "t"])
asked = st.sampled_from(
    [
        {"watch": "WATCH t: Task RETURN t"},
        {"watch": "WATCH t: Task RETURN t", "exclusive": True},
        {"watch": "WATCH t: Task [delivery: reliable] RETURN t"},
        {"collection": "Task", "includeData": True, "sendSnapshot": True},
        {"query": {"collection": "Task", "filters": []}, "includeData": True},
    ]
)
moves = st.lists(
    st.tuples(
        st.sampled_from(TENANTS),
        st.one_of(
            st.tuples(st.just("subscribe"), subs, asked),
            st.tuples(st.just("write"), st.just(""), st.just(None)),
            st.tuples(st.just("change"), st.just(""), st.just(None)),
            st.tuples(st.just("read"), st.just(""), st.just(None)),
            st.tuples(st.just("unsubscribe"), subs, st.just(None)),
            st.tuples(st.just("resume"), subs, st.integers(0, 5)),
            st.tuples(st.just("attach"), subs, st.integers(0, 5)),
            st.tuples(st.just("ack"), subs, st.integers(0, 5)),
            st.tuples(st.just("manage"), subs, st.sampled_from(["pause", "resume", "cancel"])),
            st.tuples(st.just("nack"), st.just("x"), st.just(None)),
            st.tuples(st.just("cut"), st.just(""), st.just(None)),
        ),
    ),
    max_size=25,
)


class Party:
    """One tenant's client, and everything it ever heard."""

    def __init__(self, wire: Wire, tenant: str) -> None:
        self.wire, self.tenant = wire, tenant
        self.client: Client = wire.client(tenant, version=1)
        self.client.define(ONTOLOGY)
        self.received: list[dict[str, Any]] = []

    def move(self, kind: str, sub: str, what: Any, tokens: list[str], handles: list[str]) -> None:
        client = self.client
        if kind == "subscribe":
            client.send("subscribe", what, id=sub)
        elif kind == "write":
            statement = "SPAWN t: Task { secret = $s }"
            client.send("execute", {"statement": statement, "params": {"s": self.tenant}}, id="w")
        elif kind == "change":
            client.send("execute", {"statement": "MATCH t: Task SET t.n = t.n + 1"}, id="c")
        elif kind == "read":
            client.send("execute", {"statement": "MATCH t: Task RETURN t"}, id="r")
        elif kind == "resume" and tokens:
            client.send("resume", {"token": tokens[what % len(tokens)]}, id=sub)
        elif kind == "attach" and handles:
            client.send("subscribe", {"attach": handles[what % len(handles)]}, id=sub)
        elif kind == "manage":
            client.send("manage", {"subId": sub, "operation": what}, id="m")
        elif kind == "ack":
            client.send("ack", {"subId": sub, "seq": (1 << 32) + what})
        elif kind == "unsubscribe":
            client.send("unsubscribe", {"id": sub}, id="u")
        elif kind == "nack":
            client.send("nack", {"deliveryId": sub}, id="n")
        elif kind == "cut":
            self.listen()
            client.cut()
            self.client = self.wire.client(self.tenant, version=1)

    def listen(self) -> None:
        self.received += self.client.all()


@given(moves)
@settings(max_examples=60, deadline=None)
def test_tenants_are_isolated(script: list[tuple[str, tuple[str, str, Any]]]):
    wire = Wire()
    parties = {tenant: Party(wire, tenant) for tenant in TENANTS}
    for tenant, (kind, sub, what) in script:
        received = [message for party in parties.values() for message in party.received]
        tokens = [t for m in received if (t := (m.get("payload") or {}).get("resumeToken"))]
        handles = [h for m in received if (h := (m.get("payload") or {}).get("handle"))]
        parties[tenant].move(kind, sub, what, tokens, handles)  # tokens and handles of both, mixed up
        for party in parties.values():
            party.listen()
    for tenant, party in parties.items():
        other = TENANTS[1 - TENANTS.index(tenant)]
        for message in party.received:
            assert other not in json.dumps(message), message
            if message["type"] == "event":
                assert message["payload"]["tenant"] == tenant
            if message["type"] == "error":
                assert "Traceback" not in message["payload"]["message"]
                assert message["payload"]["code"] != "internal", message
    wire.close()

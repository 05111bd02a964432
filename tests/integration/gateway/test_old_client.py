"""A client that knows only version 0 of the protocol works unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.support.gateway_wire import Client, Wire

# What the old client can read: these fields, and it skips all others


class Delta(msgspec.Struct):
    type: str
    id: str
    timestamp: int
    document: dict[str, Any] | None = None


class Told(msgspec.Struct):
    subId: str
    delta: Delta


class Page(msgspec.Struct):
    subId: str
    documents: list[dict[str, Any]]


class Problem(msgspec.Struct):
    message: str
    code: str | None = None


PAYLOADS = {"event": Told, "snapshot": Page, "error": Problem}


class Old:
    """Sends the five messages that it knows, and sorts what comes by type."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def say(self, type: str, id: str | None, payload: Any) -> None:
        self._client.send(type, payload, id=id)

    def hear(self) -> tuple[str, str | None, Any]:
        message = self._client.take()
        kind = PAYLOADS.get(message["type"])
        payload = msgspec.convert(message["payload"], kind) if kind is not None else None
        return message["type"], message.get("id"), payload

    def idle(self) -> bool:
        return not self._client.mailbox.received


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    wire.client().define("node Task { title: String, n: Int = 0 }")
    yield wire
    wire.close()


def old(wire: Wire) -> Old:
    return Old(Client(wire, wire.routers[0]))


def query(*filters: dict[str, Any], **more: Any) -> dict[str, Any]:
    """With all the keys that it always sends."""
    whole = {"collection": "Task", "filters": list(filters), "orderBy": [], "limit": 0, "startAfter": ""}
    return {**whole, "showDeleted": False, **more}


def test_an_old_client_is_told_to_authenticate_first(wire: Wire):
    client = old(wire)
    client.say("subscribe", "s", {"query": query()})
    assert client.hear() == ("error", "s", Problem("auth required", "unauthorized"))
    client.say("auth", "a", {"token": "", "database": ""})
    assert client.hear() == ("error", "a", Problem("database is required", "invalid_auth"))
    client.say("auth", "a", "nonsense")
    assert client.hear() == ("error", "a", Problem("invalid payload", "invalid_auth"))
    client.say("auth", "a", {"token": "", "database": "default"})
    assert client.hear() == ("auth_ack", "a", None)


def test_an_old_client_subscribes_gets_events_and_unsubscribes(wire: Wire):
    client, writer = old(wire), wire.client()
    writer.execute('SPAWN t: Task { title = "there", n = 7 }')
    client.say("auth", "a", {"token": "any", "database": "default"})
    client.say(
        "subscribe",
        "s1",
        {
            "query": query({"field": "n", "op": ">=", "value": 5}),
            "includeData": True,
            "sendSnapshot": True,
        },
    )
    client.say("subscribe", "s2", {"query": query(), "includeData": False, "sendSnapshot": False})
    assert client.hear()[:2] == ("auth_ack", "a")
    assert client.hear()[:2] == ("subscribe_ack", "s1")
    kind, id, page = client.hear()
    assert (kind, id, page.subId) == ("snapshot", "s1", "s1")
    assert [document["title"] for document in page.documents] == ["there"]
    assert client.hear()[:2] == ("subscribe_ack", "s2")

    writer.execute("MATCH t: Task SET t.n = 8")
    writer.execute("MATCH t: Task SET t.n = 1")
    writer.execute("MATCH t: Task KILL t")
    delivered = [client.hear()[2] for _ in range(5)]
    assert all(each.delta.id.startswith("Task/") for each in delivered)
    of = {name: [each.delta for each in delivered if each.subId == name] for name in ("s1", "s2")}
    assert [delta.type for delta in of["s1"]] == ["update", "delete"], "it left the filter"
    assert [delta.type for delta in of["s2"]] == ["update", "update", "delete"]
    assert [d.document["n"] if d.document else None for d in of["s1"]] == [8, None]
    assert all(delta.document is None for delta in of["s2"]), "it asked for none"

    client.say("unsubscribe", "u", {"id": "s1"})
    client.say("unsubscribe", "v", {"id": "never there"})
    assert [client.hear()[:2] for _ in range(2)] == [("unsubscribe_ack", "u"), ("unsubscribe_ack", "v")]
    writer.execute('SPAWN t: Task { title = "later", n = 9 }')
    assert client.hear()[2].subId == "s2"
    assert client.idle()


def test_an_old_client_gets_filter_errors_as_text(wire: Wire):
    client = old(wire)
    client.say("auth", "a", {"token": "", "database": "default"})
    client.hear()
    client.say("subscribe", "s", {"query": query({"field": "n", "op": "like", "value": 5})})
    kind, id, problem = client.hear()
    assert (kind, id) == ("error", "s")
    assert problem.message.startswith("Subscribe failed: ")

"""Conversations with one gateway, message by message; no sockets."""

from __future__ import annotations

import json
from typing import Any

import google_crc32c
import pytest

from tests.support.gateway_wire import Client, Wire
from vedette.gateway.limits import GatewayLimits, ReplayLimits

ONTOLOGY = 'node Task { title: String [required], status: String = "todo", n: Int = 0 } node Other { n: Int }'
WATCH = "WATCH t: Task WHERE t.n > $low RETURN t.title, t.n"
FILTER = {"field": "n", "op": ">", "value": 3}


@pytest.fixture
def client(wire: Wire) -> Client:
    client = wire.client()
    client.define(ONTOLOGY)
    return client


def events(messages: list[dict[str, Any]], sub: str | None = None) -> list[dict[str, Any]]:
    found = [m["payload"] for m in messages if m["type"] == "event"]
    return [e for e in found if sub is None or e["subId"] == sub]


# Auth


@pytest.mark.parametrize(
    "type", ["subscribe", "execute", "define", "resume", "ack", "manage", "unsubscribe", "nack"]
)
def test_messages_before_auth_are_refused(wire: Wire, type: str):
    client = wire.client(database="")
    samples = {"statement": "MATCH t: T RETURN t", "ontology": "", "id": "x", "token": "", "subId": "s"}
    client.send(type, {**samples, "operation": "pause", "deliveryId": "d", "seq": 1}, id="1")
    assert client.take() == {
        "id": "1",
        "type": "error",
        "payload": {"code": "unauthorized", "message": "auth required"},
    }
    assert client.mailbox.closed is None


def test_auth_needs_a_database(wire: Wire):
    client = wire.client(database="")
    client.send("auth", {"token": ""}, id="1")
    assert client.take()["payload"] == {"code": "invalid_auth", "message": "database is required"}
    client.send("auth", {"token": "", "tenant": "x"}, id="2")
    assert client.take()["type"] == "auth_ack"


def test_auth_ack_has_version_heartbeat_and_window(wire: Wire):
    client = wire.client(database="")
    client.send("auth", {"database": "d"}, id="1")
    answer = client.take()
    assert answer["id"] == "1"
    assert answer["payload"]["window"] == {"ms": 180_000, "events": 10_000, "bytes": 33_554_432}
    assert answer["payload"]["heartbeatMs"] == 30_000


def test_messages_may_follow_auth_without_waiting(wire: Wire):
    client = wire.client(database="")
    for message in (
        {"type": "auth", "id": "a", "payload": {"database": "d"}},
        {"type": "define", "id": "b", "payload": {"ontology": ONTOLOGY}},
        {"type": "execute", "id": "c", "payload": {"statement": 'SPAWN t: Task { title = "x" }'}},
        {"type": "heartbeat"},
    ):
        client.connection.receive(json.dumps(message))
    answers = client.all()
    assert [(m["type"], m.get("id")) for m in answers] == [
        ("auth_ack", "a"),
        ("heartbeat", None),
        ("define_ack", "b"),
        ("result", "c"),
    ]


# Statements


def test_execute_answers_with_rows_and_counts(client: Client):
    assert client.execute("SPAWN t: Task { title = $t }", t="one")["created"] == 1
    result = client.execute("MATCH t: Task RETURN t.title, t.n")
    assert (result["columns"], result["rows"]) == (["t.title", "t.n"], [["one", 0]])


def test_an_engine_error_keeps_its_code(client: Client):
    answer = client.ask("execute", {"statement": "MATCH t: Nothing RETURN t"})
    assert answer["type"] == "error"
    assert (answer["payload"]["code"], answer["payload"]["retryable"]) == ("E2001", False)
    assert answer["payload"]["message"].startswith("analysis error: E2001")


def test_transactions_belong_to_their_connection(wire: Wire, client: Client):
    other = wire.client()
    client.execute("BEGIN")
    client.execute('SPAWN t: Task { title = "mine" }')
    assert other.execute("MATCH t: Task RETURN t.title")["rows"] == []
    client.cut()
    assert other.execute("MATCH t: Task RETURN t.title")["rows"] == []


def test_unknown_message_types_are_errors_and_the_connection_stays_open(client: Client):
    client.send("teleport", {}, id="1")
    answer = client.take()
    assert (answer["id"], answer["payload"]["code"]) == ("1", "unknown_type")
    assert client.execute("MATCH t: Task RETURN t")["rows"] == []


# Watches


def test_a_watch_has_an_initial_event_and_a_chain(client: Client):
    client.execute('SPAWN t: Task { title = "a", n = 5 }')
    client.send("subscribe", {"watch": WATCH, "params": {"low": 1}}, id="s")
    ack, first = client.all()
    assert ack["payload"]["subId"] == "s"
    assert first["payload"]["payload"]["matches"] == [{"t.title": "a", "t.n": 5}]
    assert first["payload"]["prevSeq"] is None
    for n in (7, 8, 0):
        client.execute("MATCH t: Task SET t.n = $n", n=n)
    delivered = events(client.all())
    assert [e["payload"]["type"] for e in delivered] == ["changed", "changed", "removed"]
    assert [e["prevSeq"] for e in delivered] == [
        first["payload"]["seq"],
        delivered[0]["seq"],
        delivered[1]["seq"],
    ]
    for event in delivered:
        assert event["version"] == 1
        assert (event["tenant"], event["partition"], event["extensions"]) == ("default", 0, {})
        assert event["lsn"] == event["payload"]["tick"]


def test_equal_watches_share_a_stream(wire: Wire, client: Client):
    clients = [wire.client() for _ in range(5)]
    for number, each in enumerate(clients):
        each.send("subscribe", {"watch": WATCH, "params": {"low": 1, "unused": number}}, id="s")
    assert wire.broker.subscriptions.stream_count == 1
    client.execute('SPAWN t: Task { title = "a", n = 5 }')
    delivered = [events(each.all())[-1] for each in clients]
    assert all(event == delivered[0] for event in delivered)
    for each in clients:
        each.leave()
    assert wire.broker.subscriptions.stream_count == 0
    assert len(wire.vedette.default.watching.committed_index.watches) == 0


@pytest.mark.parametrize(
    ("options", "streams"),
    [
        ("", 1),
        ("[initial: none]", 1),
        ("[delivery: best_effort, mode: watch, visibility: committed, deliver_on: commit, window: none]", 1),
        ("[buffer: 5, ordering: arrival]", 1),
        ("[delivery: reliable]", 2),
        ("[visibility: immediate]", 2),
        ("[deliver_on: tick]", 2),
        ("[window: tumbling(1s)]", 2),
        ("[initial: since(0)]", 2),
        ("[on_full: error]", 2),
    ],
)
@pytest.mark.usefixtures("client")
def test_explicit_default_options_share_the_stream(wire: Wire, options: str, streams: int):
    for each in (wire.client(), wire.client()):
        each.send("subscribe", {"watch": f"WATCH t: Task {options} RETURN t.n"}, id="s")
        assert each.take()["type"] == "subscribe_ack"
    assert wire.broker.subscriptions.stream_count == streams


def test_a_late_subscriber_starts_with_the_current_rows(wire: Wire, client: Client):
    early, late = wire.client(), wire.client()
    text = "WATCH t: Task RETURN t.status, COUNT(*) AS many"
    early.send("subscribe", {"watch": text}, id="s")
    client.execute('SPAWN t: Task { title = "a" }')
    client.execute('SPAWN t: Task { title = "b", status = "done" }')
    late.send("subscribe", {"watch": text}, id="s")
    initial = events(late.all())[0]["payload"]
    assert sorted(initial["matches"], key=str) == [
        {"t.status": "done", "many": 1},
        {"t.status": "todo", "many": 1},
    ]
    client.execute('SPAWN t: Task { title = "c" }')
    mine, theirs = events(late.all())[-1], events(early.all())[-1]
    assert mine == theirs
    assert mine["payload"]["match"] == {"t.status": "todo", "many": 2}


def test_watches_that_use_session_names_are_not_shared(wire: Wire, client: Client):
    client.execute('SPAWN x: Task { title = "mine", n = 1 }')
    other = wire.client()
    other.execute('SPAWN x: Task { title = "theirs", n = 2 }')
    text = "WATCH t: Task WHERE t.id = #x RETURN t.title"
    for each in (client, other):
        each.send("subscribe", {"watch": text}, id="s")
    mine, theirs = (events(each.all())[0]["payload"]["matches"] for each in (client, other))
    assert (mine, theirs) == ([{"t.title": "mine"}], [{"t.title": "theirs"}])


def test_grouped_sub_ids_are_sent_to_clients_of_version_1_only(wire: Wire, client: Client):
    old, new = wire.client(), wire.client(version=1)
    for each in (old, new):
        for name in ("a", "b"):
            each.send("subscribe", {"watch": WATCH, "params": {"low": 0}}, id=name)
        each.all()
    client.execute('SPAWN t: Task { title = "x", n = 1 }')
    separate, grouped = events(old.all()), events(new.all())
    assert [(e["subId"], e.get("subIds")) for e in separate] == [("a", None), ("b", None)]
    assert [(e["subId"], e["subIds"]) for e in grouped] == [("a", ["a", "b"])]


def test_unsubscribing_ends_events_and_unknown_ids_are_accepted(client: Client):
    client.send("subscribe", {"watch": WATCH, "params": {"low": 0}}, id="s")
    client.all()
    assert client.ask("unsubscribe", {"id": "s"}) == {"id": "q", "type": "unsubscribe_ack"}
    assert client.ask("unsubscribe", {"id": "never"}) == {"id": "q", "type": "unsubscribe_ack"}
    client.execute('SPAWN t: Task { title = "x", n = 1 }')
    assert events(client.all()) == []


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        ({"watch": "WATCH t: Nothing RETURN t"}, "E2001"),
        ({"watch": "MATCH t: Task RETURN t"}, "E1101"),
        ({"watch": "WATCH t: Task [delivery: maybe] RETURN t"}, "E8009"),
        ({"collection": "Nothing"}, "E1201"),
        ({"collection": "Task } RETURN x"}, "E1201"),
        ({"collection": "_Watch"}, "E1201"),
        ({"collection": "Task", "filter": "doc.n >"}, "E1201"),
        ({"query": {"collection": "Task", "filters": [{"field": "n", "op": "~", "value": 1}]}}, "E1201"),
        ({"attach": "nothing"}, "E8002"),
        ({}, "invalid_payload"),
        ({"watch": "x", "collection": "y"}, "invalid_payload"),
    ],
)
def test_invalid_subscriptions_are_refused(client: Client, payload: Any, code: str):
    client.send("subscribe", payload, id="s")
    answer = client.take()
    assert (answer["id"], answer["type"], answer["payload"]["code"]) == ("s", "error", code)
    client.execute('SPAWN t: Task { title = "x", n = 1 }')
    assert client.all() == []


@pytest.mark.parametrize(
    ("payload", "ignored"),
    [
        ({"query": {"collection": "Task", "filtres": [], "z": 1}}, ["query.filtres", "query.z"]),
        ({"query": {"collection": "Task", "filters": [FILTER | {"hint": 1}]}}, ["query.filters[0].hint"]),
        (
            {"query": {"collection": "Task", "orderBy": [{"field": "n", "nulls": "last"}]}},
            ["query.orderBy[0].nulls"],
        ),
        ({"collection": "Task", "filters": [FILTER], "filter": "doc.n > 3"}, ["filters"]),
        ({"watch": "WATCH t: Task [initial: none] RETURN t", "x" * 1000: 1}, ["x" * 80]),
        ({"query": {"collection": "Task", "filters": [FILTER], "showDeleted": False}}, None),
    ],
)
def test_unknown_keys_are_ignored_and_named(client: Client, payload: Any, ignored: list[str] | None):
    """Issue 5: extra keys are ignored. Whoever misspells one can see it."""
    client.send("subscribe", payload, id="s")
    ack = client.take()
    assert (ack["type"], ack["payload"].get("ignored")) == ("subscribe_ack", ignored)
    client.execute('SPAWN t: Task { title = "x", n = 4 }')
    assert len(events(client.all(), "s")) == 1


def test_the_list_of_ignored_keys_is_bounded(client: Client):
    client.send("subscribe", {"query": {"collection": "Task", **{f"k{n}": 0 for n in range(5000)}}}, id="s")
    assert client.take()["payload"]["ignored"] == [f"query.k{n}" for n in range(16)]


def test_unknown_keys_of_other_messages_are_ignored(wire: Wire):
    client = wire.client(project="p", extra={"a": 1})
    client.define(ONTOLOGY)
    answer = client.ask("execute", {"statement": "MATCH t: Task RETURN t", "more": 1}, trace="abc")
    assert answer["type"] == "result"
    assert client.ask("unsubscribe", {"id": "s", "more": 1})["type"] == "unsubscribe_ack"


def test_subscription_limits_are_reported():
    wire = Wire(limits=GatewayLimits(max_subscriptions_per_connection=2, max_subscriptions_per_tenant=3))
    one, two = wire.client(), wire.client()
    one.define(ONTOLOGY)
    codes = []
    for client, name in ((one, "a"), (one, "b"), (one, "c"), (two, "a"), (two, "b")):
        client.send("subscribe", {"watch": "WATCH t: Task [initial: none] RETURN t"}, id=name)
        codes.append([m["payload"].get("code") for m in client.all()])
    wire.close()
    assert codes == [[None], [None], ["E8006"], [None], ["E8006"]]


# Filters


def test_a_filter_sends_enter_update_leave_and_delete(client: Client):
    filters = [{"field": "n", "op": ">", "value": 3}]
    client.send(
        "subscribe", {"query": {"collection": "Task", "filters": filters}, "includeData": True}, id="s"
    )
    client.all()
    client.execute('SPAWN t: Task { title = "x", n = 1 }')
    for n in (5, 6, 2, 9):
        client.execute("MATCH t: Task SET t.n = $n", n=n)
    client.execute("MATCH t: Task KILL t")
    deltas = [e["delta"] for e in events(client.all(), "s")]
    assert [(d["type"], d["reason"], d.get("document", {}).get("n")) for d in deltas] == [
        ("create", "enter", 5),
        ("update", "update", 6),
        ("delete", "leave", None),
        ("create", "enter", 9),
        ("delete", "delete", None),
    ]
    assert {d["id"].split("/")[0] for d in deltas} == {"Task"}


def test_cel_and_filter_list_agree_and_data_is_optional(client: Client):
    client.send("subscribe", {"collection": "Task", "filter": "doc.n > 3 && doc.status == 'todo'"}, id="cel")
    client.all()
    client.execute('SPAWN t: Task { title = "x", n = 4 }')
    (event,) = events(client.all())
    assert "document" not in event["delta"]
    assert event["delta"]["reason"] == "enter"


def test_snapshots_are_pages_in_order(client: Client):
    for n in (3, 1, 2, 5, 4):
        client.execute('SPAWN t: Task { title = "x", n = $n }', n=n)
    query = {"collection": "Task", "orderBy": [{"field": "n", "direction": "desc"}], "limit": 2}
    seen: list[int] = []
    cursor = None
    for page in range(3):
        asked = {**query, **({"startAfter": cursor} if cursor else {})}
        client.send("subscribe", {"query": asked, "sendSnapshot": True}, id=f"p{page}")
        snapshot = client.all()[1]["payload"]
        seen += [d["n"] for d in snapshot["documents"]]
        cursor = snapshot.get("cursor")
    assert seen == [5, 4, 3, 2, 1]
    assert cursor is None
    client.send("subscribe", {"query": {**query, "startAfter": "x!"}, "sendSnapshot": True}, id="bad")
    assert client.all()[1]["payload"]["code"] == "snapshot_failed"


def test_too_many_documents_require_pages_and_the_subscription_stays(client: Client):
    client.execute("BEGIN")
    for n in range(1001):
        client.execute('SPAWN t: Task { title = "x", n = $n }', n=n)
    client.execute("COMMIT")
    client.send("subscribe", {"query": {"collection": "Task"}, "sendSnapshot": True}, id="s")
    ack, refusal = client.all()
    assert ack["type"] == "subscribe_ack"
    assert refusal["payload"]["code"] == "snapshot_limit"
    client.execute('SPAWN t: Task { title = "one more" }')
    assert len(events(client.all())) == 1


# Holding back


def grow(client: Client, count: int) -> None:
    for n in range(count):
        client.execute("SPAWN t: Task { title = $t, n = 1 }", t=str(n))


def test_a_resumed_pause_loses_no_event(client: Client, wire: Wire):
    writer = wire.client()
    client.send("subscribe", {"watch": WATCH, "params": {"low": 0}}, id="s")
    client.all()
    assert client.ask("manage", {"subId": "s", "operation": "pause"})["type"] == "manage_ack"
    grow(writer, 5)
    assert client.all() == []
    assert client.ask("manage", {"subId": "s", "operation": "resume"})["type"] == "manage_ack"
    assert [e["payload"]["position"] for e in events(client.all())] == [2, 3, 4, 5, 6]
    grow(writer, 1)
    assert len(events(client.all())) == 1


def test_a_client_with_a_full_outbox_catches_up_or_must_resync(client: Client):
    wire = Wire(limits=GatewayLimits(window=ReplayLimits(events=4)))
    client, writer = wire.client(), wire.client()
    writer.define(ONTOLOGY)
    client.send("subscribe", {"watch": WATCH, "params": {"low": 0}}, id="s")
    client.all()
    client.router.outbox_filled(client.connection)
    grow(writer, 4)
    client.router.outbox_drained(client.connection)
    assert len(events(client.all())) == 4
    client.router.outbox_filled(client.connection)
    grow(writer, 5)
    client.router.outbox_drained(client.connection)
    (status,) = client.all()
    assert status["payload"]["status"] == "resync-required"
    assert (status["payload"]["reason"], status["payload"]["subIds"]) == ("window", ["s"])
    grow(writer, 1)
    assert client.all() == []
    client.send("subscribe", {"watch": WATCH, "params": {"low": 0}}, id="s")
    assert len(events(client.all())[0]["payload"]["matches"]) == 10
    wire.close()


def test_max_unacked_limits_the_events_in_flight(client: Client, wire: Wire):
    writer = wire.client()
    client.send("subscribe", {"watch": WATCH, "params": {"low": 0}, "maxUnacked": 2}, id="s")
    client.all()
    grow(writer, 5)
    seen = events(client.all())
    while len(seen) < 5:
        before = len(seen)
        client.send("ack", {"partition": 0, "seq": seen[-1]["seq"]})
        seen += events(client.all())
        assert before < len(seen) <= before + 2
    assert [e["payload"]["position"] for e in seen] == [2, 3, 4, 5, 6]


def test_events_acknowledged_by_all_subscribers_leave_the_window(client: Client, wire: Wire):
    one, two = wire.client(), wire.client()
    for each in (one, two):
        each.send("subscribe", {"watch": WATCH, "params": {"low": 0}}, id="s")
        each.all()
    grow(client, 3)
    last = events(one.all())[-1]["seq"]
    window = wire.broker.tenants["default"].event_log.window
    assert len(window) == 3
    one.send("ack", {"seq": last})
    assert len(window) == 3
    two.send("ack", {"seq": last - 1})
    assert len(window) == 1


def test_load_sheds_low_priority_first_and_reports_it(client: Client, wire: Wire):
    normal, low = wire.client(), wire.client()
    for each, priority in ((normal, "normal"), (low, "low")):
        each.send("subscribe", {"watch": WATCH, "params": {"low": 0}, "priority": priority}, id="s")
        each.all()
    marks = wire.routers[0].load_monitor
    marks.measure(int(marks.limit_bytes * 0.75))
    grow(client, 2)
    assert len(events(normal.all())) == 2
    (status,) = low.all()
    assert (status["payload"]["status"], status["payload"]["reason"]) == ("resync-required", "overflow")
    marks.measure(int(marks.limit_bytes * 0.95))
    grow(client, 1)
    assert [m["type"] for m in normal.all()] == ["status"]
    marks.measure(0)
    low.send("subscribe", {"watch": WATCH, "params": {"low": 0}, "priority": "low"}, id="s")
    low.all()
    grow(client, 1)
    assert len(events(low.all())) == 1
    assert normal.all() == []


def test_only_an_exclusive_watch_can_be_altered(client: Client):
    client.send("subscribe", {"watch": WATCH, "params": {"low": 0}}, id="shared")
    client.send("subscribe", {"watch": WATCH, "params": {"low": 0}, "exclusive": True}, id="own")
    client.all()
    alter = {"operation": "alter", "options": "[filter: t.n > 5]"}
    assert client.ask("manage", {"subId": "shared", **alter})["payload"]["code"] == "not_exclusive"
    assert client.ask("manage", {"subId": "own", **alter})["type"] == "manage_ack"
    client.execute('SPAWN t: Task { title = "x", n = 3 }')
    client.execute('SPAWN t: Task { title = "y", n = 7 }')
    delivered = events(client.all())
    assert [e["payload"]["match"]["t.n"] for e in delivered if e["subId"] == "own"] == [7]
    assert [e["payload"]["match"]["t.n"] for e in delivered if e["subId"] == "shared"] == [3, 7]
    assert client.ask("manage", {"subId": "own", "operation": "cancel"})["type"] == "manage_ack"
    client.execute('SPAWN t: Task { title = "z", n = 9 }')
    assert [e["subId"] for e in events(client.all())] == ["shared"]


def test_an_ended_watch_reports_the_reason(client: Client, wire: Wire):
    client.send("subscribe", {"watch": "WATCH t: Task RETURN 10 / t.n AS x", "exclusive": True}, id="s")
    client.all()
    wire.client().execute('SPAWN t: Task { title = "x" }')
    (status,) = client.all()
    assert status["payload"]["status"] == "ended"
    assert status["payload"]["errors"][0]["code"] == "E2101"


@pytest.mark.parametrize(
    "options",
    ["[delivery: reliable]", "[mode: consume, delivery: reliable]", "ON MATCH DO SET t.status = 'x'"],
)
def test_the_previous_owner_of_an_attached_watch_is_notified(wire: Wire, client: Client, options: str):
    """One connection at a time has a watch that lasts; the other does not wait for what never comes."""
    client.send("subscribe", {"watch": f"WATCH t: Task {options} RETURN t.n".replace("'", '"')}, id="s")
    handle = client.all()[0]["payload"]["handle"]
    other = wire.client()
    other.send("subscribe", {"attach": handle}, id="mine")
    assert other.take()["payload"]["lasts"]
    (status,) = client.all()
    assert (status["payload"]["status"], status["payload"]["reason"]) == ("ended", "taken")
    assert (status["payload"]["subIds"], status["payload"]["errors"][0]["code"]) == (["s"], "E8010")
    client.execute('SPAWN t: Task { title = "x", n = 1 }')
    assert [m for m in client.all() if m["type"] in ("event", "status")] == []
    assert [e["payload"]["match"] for e in events(other.all(), "mine") if "match" in e["payload"]] == [
        {"t.n": 1}
    ]
    assert (wire.broker.subscriptions.count, wire.routers[0].subscriptions) == (1, 1)
    client.send("subscribe", {"attach": handle}, id="back")
    assert client.take()["type"] == "subscribe_ack"
    assert [m["payload"]["reason"] for m in other.all() if m["type"] == "status"] == ["taken"]


def test_checksums_are_crc32c_of_the_canonical_payload(wire: Wire, client: Client):
    careful = wire.client(checksum=True)
    careful.send("subscribe", {"watch": WATCH, "params": {"low": 0}}, id="s")
    careful.all()
    client.execute('SPAWN t: Task { title = "häuser", n = 3 }')
    (event,) = events(careful.all())
    canonical = json.dumps(event["payload"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert event["checksum"] == f"{google_crc32c.value(canonical.encode()):08x}"


def test_begin_session_as_applies_to_watches(wire: Wire):
    """BEGIN SESSION AS: shared watches and filters too have the rights of who acts now, not of who connected."""
    admin = wire.client()
    admin.define(
        "node User { name: String } node Note { owner: User?, text: String }"
        " policy own: ON MATCH(n: Note) ALLOW IF n.owner = current_actor()"
        " policy users: ON MATCH(u: User) ALLOW IF true"
        " policy watches: ON META SPAWN(_Watch) ALLOW IF true"
    )
    admin.execute('SPAWN ann: User { name = "Ann" }')
    admin.send("subscribe", {"watch": "WATCH n: Note RETURN n.text"}, id="all")
    admin.execute("BEGIN SESSION AS #ann")
    admin.send("subscribe", {"watch": "WATCH n: Note RETURN n.text"}, id="hers")
    admin.send("subscribe", {"collection": "Note", "filter": "true"}, id="filtered")
    admin.execute("END SESSION")
    admin.all()
    admin.execute('SPAWN n: Note { text = "hers", owner = #ann }')
    admin.execute('SPAWN n: Note { text = "nobody\'s" }')
    delivered = [m["payload"]["subId"] for m in admin.all() if m["type"] == "event"]
    assert sorted(delivered) == ["all", "all", "filtered", "hers"]


def test_events_of_a_batch_arrive_in_order_whatever_holds_a_subscription(wire: Wire):
    """Events of one transaction: most clients get them in one write; paced, paused and old clients get the same."""
    writer = wire.client()
    writer.define("node Many { n: Int = 0 }")
    text = {"watch": "WATCH m: Many [initial: none] RETURN m.n"}
    plain, paced, paused, doubled = (wire.client() for _ in range(4))
    plain.send("subscribe", text, id="s")
    paced.send("subscribe", {**text, "maxUnacked": 2}, id="s")
    paused.send("subscribe", text, id="s")
    paused.ask("manage", {"subId": "s", "operation": "pause"})
    for name in ("a", "b"):
        doubled.send("subscribe", text, id=name)
    for client in (plain, paced, paused, doubled):
        client.all()
    writer.execute("BEGIN")
    for n in range(5):
        writer.execute("SPAWN m: Many { n = $n }", n=n)
    writer.execute("COMMIT")

    def numbers(client: Client, name: str = "s") -> list[int]:
        delivered = events(client.all())
        return [e["payload"]["match"]["m.n"] for e in delivered if e["subId"] == name]

    assert numbers(plain) == [0, 1, 2, 3, 4]
    assert numbers(doubled, "b") == [0, 1, 2, 3, 4]
    assert numbers(paused) == []
    paused.send("manage", {"subId": "s", "operation": "resume"}, id="r")
    assert numbers(paused) == [0, 1, 2, 3, 4]
    first = events(paced.all())
    assert [e["payload"]["match"]["m.n"] for e in first] == [0, 1]
    paced.send("ack", {"seq": first[-1]["seq"], "subId": "s"})
    assert numbers(paced) == [2, 3]

"""Hostile clients: idle sockets, floods, guessed tokens, requests for the data of others."""

from __future__ import annotations

import asyncio
import hmac
import json
import resource
import socket
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import jwt
import pytest

from benchmarks.gateway.swarm import masked
from tests.integration.gateway.test_http import get
from tests.support.gateway_server import Serving
from tests.support.gateway_wire import Client, Wire
from tests.support.signing import KEYS
from vedette.console import app as http
from vedette.console import http_server
from vedette.console.metrics import metrics_text, service_metrics
from vedette.gateway.broker.broker import Broker
from vedette.gateway.broker.engine_thread import EngineThread
from vedette.gateway.limits import GatewayLimits
from vedette.gateway.server import websocket as shell_module
from vedette.gateway.server.access import origin_allowed
from vedette.gateway.server.auth import AuthError, JwtAuthenticator
from vedette.gateway.server.jwk_set import JwkSet
from vedette.gateway.server.sockets import SocketSet, max_sockets
from vedette.gateway.server.websocket import WebSocketConnection
from vedette.gateway.streams import watch_stream
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.close_codes import may_reconnect
from vedette.testing import ManualClock

UPGRADE = (
    "GET /realtime/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Serving]:
    with Serving(tmp_path / "data", limits=GatewayLimits(auth_seconds=60.0)) as server:
        server.vedette.define("node Task { n: Int = 0 }")
        yield server


def dial(port: int) -> socket.socket:
    line = socket.create_connection(("127.0.0.1", port), timeout=60)
    line.settimeout(60)
    return line


def is_cut(line: socket.socket) -> bool:
    """Whether the other side ends it, after whatever it says."""
    try:
        while line.recv(4096):
            pass
    except ConnectionError:
        pass
    line.close()
    return True


# Sockets


@pytest.mark.parametrize("said", ["", "G", UPGRADE, UPGRADE + "\r\n", UPGRADE + "X-Slow: " + "x" * 500])
def test_a_client_that_does_not_authenticate_is_disconnected(
    tmp_path: Path, said: str, monkeypatch: pytest.MonkeyPatch
):
    """Nothing, half a handshake, a handshake and no auth, nor an answer to being closed."""
    monkeypatch.setattr(shell_module, "_CLOSE_SECONDS", 0.2)
    with Serving(tmp_path / "data", limits=GatewayLimits(auth_seconds=0.5)) as server:
        line = dial(server.port)
        line.sendall(said.encode())
        assert is_cut(line)


def test_sockets_above_the_limit_are_closed_at_once_and_others_stay(server: Serving):
    server.service.server.sockets.max_sockets = 3
    held = [dial(server.port) for _ in range(3)]
    server.on_loop(lambda: None)
    for line in held:
        line.sendall((UPGRADE + "\r\n").encode())
        assert line.recv(4096).startswith(b"HTTP/1.1 101")
    assert is_cut(dial(server.port))
    for line in held:
        line.close()


def test_the_socket_limit_leaves_file_descriptors_for_other_uses():
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert max_sockets(10**9) <= max(64, allowed - 2_048)
    assert max_sockets(100) == 164


@pytest.mark.parametrize("said", [b"", b"GET /health HT", b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "])
def test_an_http_head_that_never_ends_is_disconnected(
    server: Serving, monkeypatch: pytest.MonkeyPatch, said: bytes
):
    monkeypatch.setattr(http_server, "HEAD_SECONDS", 0.3)
    line = dial(server.http_port)
    line.sendall(said)
    assert is_cut(line)


def test_a_second_http_head_that_never_ends_is_disconnected(server: Serving, monkeypatch: pytest.MonkeyPatch):
    line = dial(server.http_port)
    line.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert b"200 OK" in line.recv(4096)
    monkeypatch.setattr(http_server, "HEAD_SECONDS", 0.3)
    line.sendall(b"GET /hea")
    assert is_cut(line)


def test_an_http_body_that_never_arrives_is_refused(server: Serving, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http, "BODY_SECONDS", 0.3)
    line = dial(server.http_port)
    head = (
        "POST /v1/databases/default/execute HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    )
    line.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
    assert b"408 Request Timeout" in line.recv(4096)
    line.close()


def test_http_connections_are_bounded(server: Serving, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_server.TimeLimitedH11Protocol, "max_connections", 2)
    held = [dial(server.http_port) for _ in range(2)]
    for line in held:
        line.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert b"200 OK" in line.recv(4096)
    assert is_cut(dial(server.http_port))
    for line in held:
        line.close()


# What is kept for a client


def test_refused_subscriptions_leave_no_state(wire: Wire):
    client = wire.client()
    client.define("node Task { n: Int = 0 }")
    connection = client.connection
    asked, connection._submit = connection._submit, lambda _: False
    for n in range(wire.limits.max_subscriptions_per_connection + 5):
        client.raw(
            json.dumps({"type": "subscribe", "id": f"s{n}", "payload": {"watch": "WATCH t: Task RETURN t"}})
        )
    assert {message["payload"]["code"] for message in client.all()} == {"busy"}
    connection._submit = asked
    client.send("subscribe", {"watch": "WATCH t: Task RETURN t"}, id="s")
    assert client.take()["type"] == "subscribe_ack"


class Nobody:
    congested = False

    def send(self, records: list[Any]) -> None:
        pass


def test_pending_requests_of_a_connection_are_bounded_in_bytes(wire: Wire):
    client = wire.client()
    size = wire.limits.max_pending_bytes // 10
    for n in range(15):
        text = {"type": "execute", "id": str(n), "payload": {"statement": f"-- {'x' * size}"}}
        client.connection.receive(json.dumps(text))
    held = sum(len(record.text) for _, record in wire._requests)
    assert held <= wire.limits.max_pending_bytes
    codes = [message["payload"]["code"] for message in client.all()]
    assert codes.count("busy") == 6
    assert client.ask("execute", {"statement": f"-- {'x' * size}"})["payload"]["code"] != "busy"


def test_messages_before_auth_ack_are_bounded_in_bytes(wire: Wire):
    client = Client(wire, wire.routers[0])
    size = wire.limits.max_pending_bytes // 10
    statement = json.dumps({"type": "execute", "id": "q", "payload": {"statement": f"-- {'x' * size}"}})
    client.connection.receive(json.dumps({"type": "auth", "payload": {"database": "default"}}))
    for _ in range(15):
        client.connection.receive(statement)
    assert wire.routers[0].request_budget.pending_bytes <= wire.limits.max_pending_bytes
    codes = [message["payload"]["code"] for message in client.all() if message["type"] == "error"]
    assert codes.count("busy") == 6
    assert wire.routers[0].request_budget.pending_bytes == 0, "all were answered"


def test_pending_requests_of_a_gateway_are_bounded_in_bytes():
    wire = Wire(limits=GatewayLimits(gateway_pending_bytes=100_000))
    clients = [wire.client() for _ in range(20)]
    statement = json.dumps({"type": "execute", "id": "q", "payload": {"statement": f"-- {'x' * 9_000}"}})
    for client in clients:
        client.connection.receive(statement)
    for client in clients[:3]:
        client.cut()
    codes = [message["payload"]["code"] for client in clients for message in client.all()]
    assert codes.count("busy") == 9
    assert wire.routers[0].request_budget.pending_bytes == 0, "answered, or gone"
    wire.close()


def test_the_connection_limit_of_a_database_counts_all_gateways():
    wire = Wire(limits=GatewayLimits(max_connections_per_tenant=2))
    wire.gateway()
    wire.client(gateway=0)
    second = wire.client(gateway=1)
    third = Client(wire, wire.routers[0])
    third.send("auth", {"database": "default"}, id="a")
    assert third.take()["payload"]["code"] == "too_many_connections"
    assert third.mailbox.closed is not None
    assert may_reconnect(third.mailbox.closed[0])
    wire.client("other", gateway=0)
    second.cut()
    wire.client(gateway=0)
    wire.close()


def test_resumed_subscriptions_count_against_the_quota():
    """One token, any number of names."""
    wire = Wire(limits=GatewayLimits(max_subscriptions_per_connection=3, max_subscriptions_per_tenant=5))
    first, second = wire.client(), wire.client()
    first.define("node Task { n: Int = 0 }")
    first.send("subscribe", {"watch": "WATCH t: Task [initial: none] RETURN t"}, id="s")
    token = first.take()["payload"]["resumeToken"]
    outcomes = [
        client.ask("resume", {"token": token, "subId": f"s{n}"})
        for client in (first, second)
        for n in range(4)
    ]
    codes = [each["payload"]["code"] if each["type"] == "error" else each["status"] for each in outcomes]
    assert codes == ["ok", "ok", "E8006", "E8006", "ok", "ok", "E8006", "E8006"]
    assert first.ask("resume", {"token": token, "subId": "s1"})["status"] == "ok", (
        "a subscription that it already has"
    )
    wire.close()


def test_ending_an_exclusive_watch_does_not_scan_all_clients(wire: Wire):
    client = wire.client()
    client.define("node Task { n: Int = 0 }")
    client.send("subscribe", {"watch": "WATCH t: Task [initial: none] RETURN t", "exclusive": True}, id="s")
    handle = client.take()["payload"]["handle"]

    class Closed(dict[Any, Any]):
        def values(self) -> Any:
            raise AssertionError("a hundred thousand clients were looked at")

    wire.broker.subscriptions.clients = Closed(wire.broker.subscriptions.clients)
    client.execute(f"CANCEL WATCH #{handle}")
    ended = [message["payload"] for message in client.all() if message["type"] == "status"]
    assert [(each["status"], each["subIds"]) for each in ended] == [("ended", ["s"])]
    assert not next(iter(wire.broker.subscriptions.clients.items()))[1].subscriptions
    wire.broker.subscriptions.clients = dict(wire.broker.subscriptions.clients.items())


def test_queued_acks_of_a_subscription_are_coalesced():
    port, engine = Nobody(), EngineThread(lambda _: Broker.__new__(Broker))
    for seq in (5, 9, 7):
        assert engine.post(port, link.AckEvents(conn=1, sub_id="s", seq=seq))
    for _ in range(10_000):
        engine.post(port, link.AckEvents(conn=1, sub_id="t", seq=1))
    assert sorted(t.seq for t in engine._latest_acks.values()) == [1, 9]
    assert engine.waiting == 0


def test_deferred_acks_of_a_busy_client_are_coalesced(wire: Wire):
    client = wire.client()
    client.define("node Task { n: Int = 0 }")
    client.send("subscribe", {"watch": "WATCH t: Task [delivery: reliable] RETURN t.n"}, id="s")
    (known,) = wire.broker.subscriptions.clients.values()
    known.busy = True
    for seq in range(1_000):
        client.send("ack", {"seq": seq, "subId": "s"})
        client.send("ack", {"seq": seq, "subId": f"no such {seq}"})
    assert [trim.seq for trim in known.deferred_acks.values()] == [999]
    assert not known.deferred_requests
    known.busy = False


def test_unread_replies_are_bounded(tmp_path: Path):
    """No mark holds answers back: many large ones are asked for and none is read."""
    limits = GatewayLimits(outbox_excess_bytes=4_000_000)
    with Serving(tmp_path / "data", limits=limits) as server, dial(server.port) as line:
        server.vedette.define("node Task { text: String }")
        with server.vedette.session() as session:
            session.execute("SPAWN t: Task { text = $text }", text="x" * 500_000)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        line.sendall((UPGRADE + "\r\n").encode())
        line.recv(4_096)
        line.sendall(masked({"type": "auth", "id": "a", "payload": {"database": "default"}}))
        question = masked({"type": "execute", "payload": {"statement": "MATCH t: Task RETURN t.text"}})
        line.sendall(question * 200)
        limit, router = 0, server.service.router
        while not router.counters.closed:
            limit = max(limit, server.on_loop(lambda: server.service.server.sockets.buffers.outbox_bytes))
        assert limit < limits.outbox_excess_bytes + 4 * 600_000
        assert router.counters.closed == {4001: 1}


@pytest.mark.parametrize("mode", ["delivery: reliable", "mode: consume"])
def test_credit_is_also_bounded_in_bytes(wire: Wire, mode: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(watch_stream, "MAX_UNCONFIRMED_BYTES", 100_000)
    client, writer = wire.client(), wire.client()
    writer.define("node Task { n: Int, text: String }")
    asked = {"watch": f"WATCH t: Task [{mode}] RETURN t.n, t.text", "prefetch": 5_000, "maxUnacked": 5_000}
    client.send("subscribe", asked, id="s")
    for n in range(100):
        writer.execute("SPAWN t: Task { n = $n, text = $text }", n=n, text="x" * 10_000)
    delivered: list[int] = []
    while len(delivered) < 100:
        events = [m["payload"] for m in client.all() if m["type"] == "event"]
        events = [event for event in events if event["payload"]["type"] != "initial"]
        assert 0 < len(events) <= 10 + watch_stream.TAKE_BATCH_EVENTS, "the byte limit, plus one batch"
        for event in events:
            delivered.append(event["payload"]["match"]["t.n"])
            settled = (
                {"deliveryId": event["payload"]["delivery_id"]}
                if "consume" in mode
                else {"seq": event["seq"]}
            )
            client.send("ack", settled)
    assert delivered == list(range(100))


def test_an_ack_of_another_partition_confirms_nothing(wire: Wire):
    client = wire.client()
    client.define("node Task { n: Int = 0 }")
    client.send(
        "subscribe", {"watch": "WATCH t: Task [delivery: reliable] RETURN t.n", "maxUnacked": 1}, id="s"
    )
    client.execute("SPAWN t: Task { n = 1 }")
    client.execute("SPAWN t: Task { n = 2 }")
    first = [message["payload"] for message in client.all() if message["type"] == "event"][-1]
    client.send("ack", {"partition": 7, "seq": first["seq"], "subId": "s"})
    assert [message["payload"]["code"] for message in client.all()] == ["invalid_payload"]
    client.send("ack", {"partition": 0, "seq": first["seq"], "subId": "s"})
    assert [message["type"] for message in client.all()] == ["event"]


def test_long_lived_tokens_do_not_keep_closed_connections_alive():
    """Each shows a token for a year, some show it again and again, and all go away."""

    async def scenario() -> int:
        router: Any = SimpleNamespace(limits=GatewayLimits(), authenticator=None)
        sockets = SocketSet(router, clock=ManualClock(), allowed_origins=(), uses_tls=False)
        kept = WebSocketConnection(sockets)
        for n in range(5_000):
            socket = WebSocketConnection(sockets)
            sockets.timers.schedule_expiry(socket, 1e9 + n)
            sockets.timers.schedule_expiry(kept, 2e9 + n)
            sockets.remove(socket)
        return len(sockets.timers._expiries)

    assert asyncio.run(scenario()) < 2_000


def test_deferred_messages_are_not_executed_in_another_database(wire: Wire):
    """It waited for an `auth` that was refused: it is refused, too."""
    admin = wire.client("prod")
    admin.define("node Task { n: Int = 0 }")
    client = wire.client("")
    requests = [
        {"type": "auth", "id": "1", "payload": {"database": "a\x00b"}},
        {"type": "execute", "id": "2", "payload": {"statement": "SPAWN t: Task { n = 1 }"}},
        {"type": "heartbeat"},
    ]
    for request in requests:
        client.connection.receive(json.dumps(request))
    answers = client.all()
    assert [(m["type"], m.get("id")) for m in answers] == [
        ("error", "1"),
        ("error", "2"),
        ("heartbeat", None),
    ]
    assert answers[1]["payload"]["code"] == "unauthorized"
    assert client.ask("auth", {"database": "prod"})["type"] == "auth_ack"
    assert client.all() == []
    assert admin.execute("MATCH t: Task RETURN t")["rows"] == []


# Names, tenants, words


STRANGE = [
    "../other",
    "a/b",
    "a\\b",
    ".",
    "..",
    "a\x00b",
    "a\nb",
    "x" * 300,
    "con\r\nX-Header: y",
    "*",
    "\u202e",
    "CON",
]


@pytest.mark.parametrize("name", STRANGE)
def test_a_database_name_cannot_be_a_path(tmp_path: Path, name: str):
    """Refused, or kept as it is under the data directory: each its own."""
    wire = Wire(str(tmp_path / "home" / "data"))
    client = wire.client("")
    answer = client.ask("auth", {"token": "", "database": name})
    if answer["type"] == "auth_ack":
        client.define("node Secret { n: Int = 0 }")
        client.execute("SPAWN s: Secret { n = 1 }")
        assert name in wire.vedette.databases()
    else:
        assert answer["payload"]["code"] != "internal", answer
    wire.client().define("node Secret { n: Int = 0 }")
    assert wire.client().execute("MATCH s: Secret RETURN s")["rows"] == []
    outside = {path.name for path in tmp_path.rglob("*") if tmp_path / "home" / "data" not in path.parents}
    assert outside == {"home", "data"}
    wire.close()


def test_a_response_never_repeats_request_headers(server: Serving):
    status, body = get(server, "/v1/databases/a%0d%0aX-Evil:%201/execute")
    assert status in (400, 404, 405)
    assert b"X-Evil" not in body
    status, body = get(server, "/realtime/sse?database=default%0d%0aX-Evil:1&collection=Task")
    assert status == 400
    assert b"\r\nX-Evil" not in body


def test_database_names_are_hidden_from_other_machines(tmp_path: Path):
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [jwk for _, jwk in KEYS.values()]}))
    with Serving(tmp_path / "data", auth_keys=str(keys)) as server:
        server.on_loop(lambda: server.service.engine.broker.tenant("secret-customer"))
        figures = service_metrics(server.service)
        assert b"secret-customer" in metrics_text(figures)
        assert b"secret-customer" not in metrics_text(figures, names=False)
        assert b"vedette_connections" in metrics_text(figures, names=False)


def test_incomplete_messages_are_bounded_over_all_connections(tmp_path: Path):
    """Each may be a megabyte, and there may be many thousands of connections."""
    limits = GatewayLimits(first_frame_bytes=1_000, gateway_pending_bytes=200_000)
    with Serving(tmp_path / "data", limits=limits) as server:
        lines = []
        for _ in range(4):
            line = dial(server.port)
            line.sendall((UPGRADE + "\r\n").encode())
            assert b"101" in line.recv(4_096)
            line.sendall(masked({"type": "auth", "id": "a", "payload": {"database": "default"}}))
            assert b"auth_ack" in line.recv(4_096)
            line.sendall(bytes((0x81, 0xFF)) + (90_000).to_bytes(8, "big") + bytes(4) + b" " * 80_000)
            lines.append(line)
        for line in lines[2:]:
            assert (1013).to_bytes(2, "big") in line.recv(4_096)
            line.close()
        for line in lines[:2]:
            line.sendall(b" " * 10_000)
            assert b"invalid_frame" in line.recv(4_096), "who had room goes on"
        while server.on_loop(lambda: server.service.server.sockets.buffers.partial_message_bytes):
            pass
        for line in lines[:2]:
            line.close()


# Values that not every process can read

NESTED = "[" * 600 + "]" * 600
HUGE = "1" + "0" * 60


@pytest.mark.parametrize("value", [NESTED, HUGE, str(2**64), str(-(2**63) - 1), "[[" + HUGE + "]]"])
@pytest.mark.parametrize(
    "message",
    [
        '{"type": "execute", "id": "q", "payload": {"statement": "MATCH t: T RETURN t", "params": {"n": %s}}}',
        '{"type": "subscribe", "id": "q", "payload": {"watch": "WATCH t: T RETURN t", "params": {"n": %s}}}',
        (
            '{"type": "subscribe", "id": "q", "payload": {"query": {"collection": "T", "filters": '
            '[{"field": "n", "op": "==", "value": %s}]}}}'
        ),
    ],
)
def test_values_that_the_worker_link_cannot_encode_are_refused(wire: Wire, message: str, value: str):
    """Between a worker and the engine they would have taken everybody's requests along."""
    client = wire.client()
    client.define("node T { n: Int = 0 }")
    client.raw(message % value)
    (answer,) = client.all()
    assert (answer["id"], answer["type"], answer["payload"]["code"]) == ("q", "error", "invalid_payload")
    assert client.execute("MATCH t: T RETURN t")["rows"] == []


def test_a_record_that_cannot_be_encoded_does_not_affect_others(caplog: pytest.LogCaptureFixture):
    records = [link.ExecuteRequest(conn=n, id=str(n), kind="execute", text="", params={}) for n in range(7)]
    records[4].params = {"n": 2**70}
    unsaid: list[Any] = []
    frames = link.encode_frames(records, on_failed=unsaid.append)
    said = [record for frame in frames for record in link.decode_batch(frame[4:], from_gateway=True)]
    assert [record.conn for record in said] == [0, 1, 2, 3, 5, 6]
    assert unsaid == [records[4]]
    assert [getattr(r, "action", None) for r in caplog.records] == ["link.unencodable"]


def test_the_id_of_a_resumed_subscription_has_the_same_length_limit(wire: Wire):
    client = wire.client()
    client.define("node T { n: Int = 0 }")
    client.send("subscribe", {"watch": "WATCH t: T [initial: none] RETURN t"}, id="s")
    token = client.take()["payload"]["resumeToken"]
    client.send("resume", {"token": token, "subId": "x" * 257}, id="r")
    assert client.take()["payload"]["code"] == "invalid_payload"
    assert list(client.connection.subscriptions) == ["s"]


def test_the_last_subscribe_message_of_an_id_sets_its_options(wire: Wire):
    client = wire.client()
    client.define("node T { n: Int = 0 }")
    watch = {"watch": "WATCH t: T [initial: none] RETURN t"}
    messages: list[dict[str, Any]] = [
        {"type": "subscribe", "id": "s", "payload": watch | {"maxUnacked": 1, "priority": "low"}},
        {"type": "execute", "id": "s", "payload": {"statement": "nonsense"}},
        {"type": "unsubscribe", "id": "u", "payload": {"id": "s"}},
        {"type": "subscribe", "id": "s", "payload": watch | {"maxUnacked": 2}},
        {"type": "subscribe", "id": "s", "payload": watch | {"maxUnacked": 3}},
    ]
    for message in messages:
        client.connection.receive(json.dumps(message))
    client.all()
    (sub,) = client.connection.subscriptions.values()
    assert (sub.max_unacked, sub.low_priority) == (3, False)
    client.send("subscribe", watch, id="s")
    client.all()
    (sub,) = client.connection.subscriptions.values()
    assert sub.max_unacked is None


def test_options_of_ended_watches_are_dropped():
    wire = Wire(limits=GatewayLimits(max_subscriptions_per_connection=5))
    client = wire.client()
    for n in range(100):
        client.send("subscribe", {"watch": "nonsense", "maxUnacked": 1}, id=str(n))
    assert len(client.connection._options or ()) <= 5
    wire.close()


@pytest.mark.parametrize("part", [0, 1])
def test_a_deeply_nested_token_is_refused(part: int):
    keys = JwkSet(lambda: {"keys": [{"kty": "oct", "k": "A" * 43}]}, ManualClock())
    authenticator = JwtAuthenticator(keys, ManualClock())
    nested = urlsafe_b64encode(b'{"a":' + b"[" * 8_000).rstrip(b"=").decode()
    parts = jwt.encode({"exp": 1}, b"\0" * 32, "HS256").split(".")
    parts[part] = nested
    signature = hmac.digest(b"\0" * 32, ".".join(parts[:2]).encode(), "sha256")
    parts[2] = urlsafe_b64encode(signature).rstrip(b"=").decode()
    with pytest.raises(AuthError, match="invalid token"):
        authenticator.authenticate(".".join(parts), "shop")


def test_claims_that_the_worker_link_cannot_encode_are_refused():
    clock = ManualClock()
    keys = JwkSet(lambda: {"keys": [{"kty": "oct", "k": "A" * 43}]}, clock)
    claims = {"exp": clock.now().timestamp() + 60, "tenant": "shop", "admin": True}
    authenticator = JwtAuthenticator(keys, clock)
    assert authenticator.authenticate(jwt.encode(claims, b"\0" * 32, "HS256"), "shop").is_system
    with pytest.raises(AuthError, match="invalid token"):
        authenticator.authenticate(jwt.encode(claims | {"n": 2**64}, b"\0" * 32, "HS256"), "shop")


# HTTP


@pytest.mark.parametrize("name", ["http://[", "http://[::1", "http://127.0.0.1@[", "null", "\x80"])
def test_malformed_origins_and_hosts_are_refused(name: str):
    assert not origin_allowed(name, "127.0.0.1", (), requires_auth=True)
    assert not origin_allowed("http://127.0.0.1", name.removeprefix("http://"), (), requires_auth=True)


@pytest.mark.parametrize("params", ["[" * 5_000, '{"n": "\\ud800"}', '{"n": NaN}', "", f'{{"n": {HUGE}}}'])
def test_malformed_parameters_of_server_sent_events_are_refused(server: Serving, params: str):
    path = f"/realtime/sse?database=default&watch={quote('WATCH t: T RETURN t')}&params={quote(params)}"
    status, answer = get(server, path)
    assert (status, json.loads(answer)["error"]["code"]) == (400, "invalid_payload")


@pytest.mark.parametrize(
    "text",
    [
        "WATCH t: T [mode: consume] RETURN t",
        "WATCH t: T [delivery: reliable] RETURN t",
        "WATCH t: T ON MATCH DO SET t.n = 2 RETURN t",
    ],
)
def test_watches_with_acks_are_refused_over_server_sent_events(server: Serving, text: str):
    server.vedette.define("node T { n: Int = 0 }")
    with server.vedette.session() as session:
        session.execute("SPAWN t: T")
        status, answer = get(server, f"/realtime/sse?database=default&watch={quote(text)}")
        assert (status, json.loads(answer)["error"]["code"]) == (400, "invalid_payload")
        assert session.execute('MATCH w: _Watch WHERE w.status = "active" RETURN w').rows == []
        work = session.watch("WATCH t: T [mode: consume] RETURN t").poll()
        assert [event.attributes["attempt"] for event in work if event.delivery_id] == [1], (
            "no attempt was counted"
        )

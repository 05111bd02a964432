"""Size limits: replies, initial events, events, and frames between processes."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gateway.swarm import masked
from tests.support.gateway_server import Serving
from tests.support.gateway_wire import Client, Wire
from vedette.console import http_server
from vedette.gateway.broker import ports as links
from vedette.gateway.broker import statements
from vedette.gateway.limits import GatewayLimits
from vedette.gateway.server import router as switchboard
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.broker_link import decode_batch, encode_frames

MOST = 20_000
ONTOLOGY = "node Doc { n: Int = 0, text: String }"
WATCH = "WATCH d: Doc RETURN d.text"


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    monkeypatch.setattr(statements, "MAX_INLINE_REPLY_BYTES", 5_000)
    wire = Wire(limits=GatewayLimits(max_answer_bytes=MOST))
    yield wire
    wire.close()


def writer(wire: Wire, size: int, count: int = 1) -> Client:
    client = wire.client()
    client.define(ONTOLOGY)
    for _ in range(count):
        client.execute("SPAWN d: Doc { text = $t }", t="x" * size)
    return client


def settled(client: Client, id: str) -> dict[str, Any]:
    """The answer to a request that may be worked on elsewhere."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        client.wire.run()
        for message in list(client.mailbox.received):
            if message.get("id") == id:
                client.mailbox.received.remove(message)
                return message
    raise AssertionError("no answer")


# Answers


def test_a_reply_above_the_limit_is_refused_with_advice(wire: Wire):
    client = writer(wire, 9_000, 3)
    client.send("execute", {"statement": "MATCH d: Doc RETURN d.text"}, id="q")
    answer = settled(client, "q")
    assert (answer["type"], answer["payload"]["code"]) == ("error", "too_large")
    assert "LIMIT" in answer["payload"]["message"]
    client.send("execute", {"statement": "MATCH d: Doc RETURN d.text LIMIT 2"}, id="q")
    assert len(settled(client, "q")["payload"]["rows"]) == 2
    client.send("execute", {"statement": "MATCH d: Doc RETURN d.text", "script": True}, id="q")
    assert settled(client, "q")["payload"]["code"] == "too_large"


def test_a_write_whose_reply_is_too_large_is_reported_as_executed(wire: Wire):
    client = writer(wire, 9_000, 3)
    client.send("execute", {"statement": "MATCH d: Doc SET d.n = 7 RETURNING d.text"}, id="q")
    answer = settled(client, "q")
    assert answer["payload"]["code"] == "too_large"
    assert "was executed" in answer["payload"]["message"]
    assert client.execute("MATCH d: Doc WHERE d.n = 7 RETURN COUNT(*) AS n")["rows"] == [[3]]


def test_large_replies_stay_in_order_and_do_not_block_other_clients(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
):
    """A large reply is encoded in a thread. Later requests of its connection wait; other connections do not."""
    client, other = writer(wire, 9_000), wire.client()
    held: list[tuple[Future[bytes], Any]] = []

    class Pool:
        def submit(self, work: Any) -> Future[bytes]:
            held.append((Future(), work))
            return held[-1][0]

    monkeypatch.setattr(wire.broker.statements, "_pool", Pool())
    client.send("execute", {"statement": "MATCH d: Doc RETURN d.text"}, id="large")
    client.send("execute", {"statement": "MATCH d: Doc RETURN d.n"}, id="small")
    assert other.execute("MATCH d: Doc RETURN d.n")["rows"] == [[0]]
    assert client.all() == []
    ((future, work),) = held
    future.set_result(work())
    monkeypatch.undo()
    assert [m["id"] for m in client.all()] == ["large", "small"]


def test_large_replies_wait_for_a_congested_gateway(wire: Wire):
    """Else what is on the way to one client who takes nothing would fill the link that all of its gateway share."""
    client, other = writer(wire, 9_000), wire.client()
    (port,) = {known.port for known in wire.broker.subscriptions.clients.values()}
    port.congested = True  # type: ignore[misc]
    client.send("execute", {"statement": "MATCH d: Doc RETURN d.text"}, id="large")
    assert other.execute("MATCH d: Doc RETURN d.n")["rows"] == [[0]], "what is small is answered"
    assert wire.broker.statements._waiting_for_port
    port.congested = False  # type: ignore[misc]
    assert len(settled(client, "large")["payload"]["rows"]) == 1
    assert not wire.broker.statements._waiting_for_port


def test_an_unexpected_error_in_the_thread_pool_is_logged(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    client = writer(wire, 9_000)

    def explode(*_: object, **__: object) -> bytes:
        raise RuntimeError("secret internals")

    monkeypatch.setattr(statements, "result_message", explode)
    client.send("execute", {"statement": "MATCH d: Doc RETURN d.text"}, id="q")
    message = settled(client, "q")["payload"]["message"]
    assert "secret" not in message
    reference = message.rsplit(" ", 1)[-1]
    (record,) = [r for r in caplog.records if getattr(r, "reference", None) == reference]
    assert record.exc_info is not None


# What a watch begins with, and its events


@pytest.mark.parametrize("join", [False, True])
def test_a_watch_with_a_too_large_initial_event_is_refused(wire: Wire, join: bool):
    client = writer(wire, 0)
    if join:
        other = wire.client()
        other.send("subscribe", {"watch": WATCH}, id="s")
    for _ in range(3):
        client.execute("SPAWN d: Doc { text = $t }", t="x" * 9_000)
    client.send("subscribe", {"watch": WATCH}, id="s")
    (refusal,) = client.all()
    assert (refusal["id"], refusal["type"], refusal["payload"]["code"]) == ("s", "error", "too_large")
    assert "initial: none" in refusal["payload"]["message"]
    assert wire.broker.subscriptions.count == wire.routers[0].subscriptions == int(join)
    assert wire.broker.subscriptions.stream_count == int(join)
    client.send("subscribe", {"watch": WATCH.replace("RETURN", "[initial: none] RETURN")}, id="s")
    assert client.take()["type"] == "subscribe_ack"


@pytest.mark.parametrize("options", [{}, {"exclusive": True}, {"consume": True}])
def test_an_event_above_the_limit_ends_its_watch_with_a_reason(wire: Wire, options: dict[str, Any]):
    client = writer(wire, 0)
    client.send("subscribe", {"watch": WATCH, **options}, id="s")
    client.all()
    with wire.vedette.session() as session:
        session.execute("SPAWN d: Doc { text = $t }", t="x" * (MOST + 1))
    (ended,) = client.all()
    assert (ended["type"], ended["payload"]["status"], ended["payload"]["subIds"]) == (
        "status",
        "ended",
        ["s"],
    )
    assert ended["payload"]["errors"][0]["code"] == "too_large"
    assert (
        wire.broker.subscriptions.count
        == wire.routers[0].subscriptions
        == wire.broker.subscriptions.stream_count
        == 0
    )


@pytest.mark.parametrize("payload", [{"watch": WATCH}, {"collection": "Doc"}])
def test_a_failing_stream_is_ended_with_a_reason(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, payload: dict[str, Any]
):
    client = writer(wire, 0)
    client.send("subscribe", payload, id="s")
    client.all()

    def explode(*_: object) -> None:
        raise RuntimeError("secret internals")

    with monkeypatch.context() as patch:
        patch.setattr("vedette.gateway.streams.stream.Stream.encode_event", explode)
        client.execute("SPAWN d: Doc { text = $t }", t="x")
        (ended,) = [m for m in client.all() if m["type"] == "status"]
    assert (ended["payload"]["status"], ended["payload"]["reason"]) == ("ended", "internal")
    assert "secret" not in str(ended)
    client.send("subscribe", payload, id="s")
    assert client.take()["type"] == "subscribe_ack"


# Frames between processes


def test_a_batch_with_many_bytes_is_sent_in_parts(wire: Wire, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("vedette.gateway.streams.send_queue.SEND_THRESHOLD_BYTES", 4_000)
    client = writer(wire, 3_000)
    spread: list[int] = []
    said = switchboard.ConnectionRouter.deliver

    def counting(router: Any, records: Any) -> None:
        spread.append(sum(len(r.data) for r in records if isinstance(r, link.Reply)))
        said(router, records)

    monkeypatch.setattr(switchboard.ConnectionRouter, "deliver", counting)
    message = json.dumps({"type": "execute", "payload": {"statement": "MATCH d: Doc RETURN d.text"}})
    for _ in range(10):
        client.connection.receive(message)
    assert len([m for m in client.all() if m["type"] == "result"]) == 10
    assert max(spread) < 4_000 + 3_500


def test_frames_between_processes_are_bounded_and_keep_the_order():
    records = [link.Reply(conn=n, data=b"x" * 1_000) for n in range(100)]
    frames = encode_frames(records, max_bytes=10_000)
    assert max(map(len, frames)) <= 10_000
    back = [r for frame in frames for r in decode_batch(frame[4:], from_gateway=False)]
    assert back == records
    assert len(encode_frames(records[:1], max_bytes=10)) == 1, "one record is never cut"


def test_a_slow_worker_is_kept_and_a_stalled_one_is_disconnected():
    stuck = links.StallDetector(high_bytes=100, seconds=5.0, max_bytes=1_000)
    assert not stuck.is_stalled(99, now=0.0)
    assert not stuck.is_stalled(500, now=1.0)
    assert not stuck.is_stalled(500, now=5.9)
    assert stuck.is_stalled(400, now=6.0), "it was not below the bound for too long"
    assert not stuck.is_stalled(50, now=7.0)
    assert not stuck.is_stalled(500, now=8.0)
    assert stuck.is_stalled(1_001, now=8.1), "and there is an end"


# Readers that are slow


UPGRADE = "Host: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
LARGE = "MATCH d: Doc RETURN d.text"


def over_websocket(line: socket.socket) -> None:
    line.sendall(f"GET /realtime/ws HTTP/1.1\r\n{UPGRADE}Sec-WebSocket-Key: {'A' * 22}==\r\n\r\n".encode())
    assert b"101" in line.recv(4_096)
    line.sendall(masked({"type": "auth", "payload": {"database": "default"}}))
    line.sendall(masked({"type": "execute", "payload": {"statement": LARGE}}))


def over_http(line: socket.socket) -> None:
    body = json.dumps({"statement": LARGE})
    head = (
        f"POST /v1/databases/default/execute HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
    )
    line.sendall(f"{head}Content-Type: application/json\r\n\r\n{body}".encode())


@pytest.mark.parametrize("ask", [over_websocket, over_http])
def test_a_slow_client_is_not_disconnected(
    tmp_path: Path, ask: Callable[[socket.socket], None], monkeypatch: pytest.MonkeyPatch
):
    """`stalled_seconds` is how long a client may take nothing, not how long it may take for everything.

    The server runs on the real clock. The bound is long enough for a busy machine, and reading takes longer.
    """
    limits = GatewayLimits(outbox_high_bytes=65_536, outbox_low_bytes=16_384, stalled_seconds=4.0)
    monkeypatch.setattr(http_server, "STALL_SECONDS", limits.stalled_seconds)
    with Serving(tmp_path / "data", limits=limits) as server, socket.socket() as line:
        server.vedette.define(ONTOLOGY)
        with server.vedette.session() as session:
            session.execute("SPAWN d: Doc { text = $t }", t="x" * 12_000_000)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        line.connect(("127.0.0.1", server.port if ask is over_websocket else server.http_port))
        ask(line)
        line.settimeout(60)
        begin = time.monotonic()
        taken = 0
        while taken < 12_000_000:
            data = line.recv(262_144)
            assert data, f"cut off after {taken} bytes"
            taken += len(data)
            time.sleep(0.06)  # the test is about a slow connection
        assert time.monotonic() - begin > limits.stalled_seconds

"""Faults behind the gateway: the disk, the engine thread, a worker, its link."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.databases import FULL, Disk, in_thread, opened_on
from tests.support.gateway_server import Serving
from tests.support.gateway_wire import Wire
from tests.support.waiting import TIMEOUT_SECONDS
from vedette.client.session import connect
from vedette.clock import SystemClock
from vedette.gateway.broker.ports import WorkerLinks, WorkerPort
from vedette.gateway.limits import GatewayLimits
from vedette.gateway.server.auth import LoopbackAuthenticator
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.broker_link import LINK_VERSION, MAX_FRAME_BYTES, decode_batch, encode_batch
from vedette.gateway.worker import GatewayWorker
from vedette.processes.engine_server import not_ready_reason
from vedette.transport.framing import FrameSplitter

ONTOLOGY = "node Task { n: Int = 0 }"
WATCH = "WATCH t: Task RETURN t.n"


def test_nothing_is_sent_before_it_is_durable(tmp_path: Path):
    """Answers, errors, events and snapshots wait for the flush that makes true what they say."""
    disk = Disk()
    with opened_on(disk, tmp_path / "data") as catalog:
        wire = Wire(opened=catalog)
        writer, reader = wire.client(), wire.client()
        writer.define(ONTOLOGY)
        reader.send("subscribe", {"watch": WATCH}, id="s")
        reader.all()
        disk.hold()

        def ask() -> None:
            message = b'{"type":"execute","id":"w","payload":{"statement":"SPAWN t: Task { n = 1 }"}}'
            writer.connection.receive(message)
            late = b'{"type":"subscribe","id":"t","payload":{"watch":"WATCH t: Task RETURN t.n, t"}}'
            reader.connection.receive(late)
            wire.run()

        asking = in_thread(ask)
        disk.wait_until_reached()
        assert not writer.mailbox.received
        assert not reader.mailbox.received
        disk.release()
        asking.result(TIMEOUT_SECONDS)
        assert writer.all()[0]["type"] == "result"
        assert {m["type"] for m in reader.all()} == {"event", "subscribe_ack"}
        wire.broker.close()


def test_a_failed_write_is_an_error_and_no_event(tmp_path: Path):
    disk = Disk()
    with opened_on(disk, tmp_path / "data") as catalog:
        wire = Wire(opened=catalog)
        writer, reader = wire.client(), wire.client()
        writer.define(ONTOLOGY)
        writer.execute("SPAWN t: Task { n = 1 }")
        reader.send("subscribe", {"watch": WATCH}, id="s")
        reader.all()
        disk.breaks = FULL
        answer = writer.ask("execute", {"statement": "SPAWN t: Task { n = 2 }"})
        assert (answer["type"], answer["payload"]["code"]) == ("error", "E6001")
        assert [m for m in reader.all() if m["type"] == "event"] == []
        assert writer.execute("MATCH t: Task RETURN t.n")["rows"] == [[1]]
        refused = writer.ask("execute", {"statement": "SPAWN t: Task { n = 3 }"})
        assert refused["payload"]["code"] == "E6005", "read-only from now on, and it says so"
        wire.broker.close()


def test_an_unexpected_error_affects_only_its_request(wire: Wire, monkeypatch: pytest.MonkeyPatch):
    client, other = wire.client(), wire.client()
    client.define(ONTOLOGY)

    def explode(*_: object) -> None:
        raise RuntimeError("secret internals")

    with monkeypatch.context() as patch:
        patch.setattr(wire.broker.graph_subscriber, "subscribe_watch", explode)
        client.send("subscribe", {"watch": WATCH}, id="s")
    answer = client.take()
    assert answer["payload"]["code"] == "internal"
    assert "secret" not in str(answer)
    assert other.execute("MATCH t: Task RETURN t")["rows"] == []


def test_a_failed_replay_requires_a_resync(wire: Wire, monkeypatch: pytest.MonkeyPatch):
    client = wire.client()
    client.define(ONTOLOGY)
    client.send("subscribe", {"watch": "WATCH t: Task [initial: none] RETURN t.n", "maxUnacked": 1}, id="s")
    for n in range(3):
        client.execute("SPAWN t: Task { n = $n }", n=n)

    def explode(*_: object) -> None:
        raise RuntimeError("secret internals")

    with monkeypatch.context() as patch:
        patch.setattr(wire.broker.resumer, "replay", explode)
        first = [message for message in client.all() if message["type"] == "event"][-1]
        client.send("ack", {"seq": first["payload"]["seq"]})
    assert [m["payload"]["reason"] for m in client.all() if m["type"] == "status"] == ["overflow"]
    assert client.execute("MATCH t: Task RETURN COUNT(*) AS n")["rows"] == [[3]]


# Workers


@asynccontextmanager
async def worker_of(server: Serving, socket: Path) -> AsyncIterator[tuple[GatewayWorker, str]]:
    worker = GatewayWorker(
        socket=socket,
        secret=server.service.secret,
        authenticator=LoopbackAuthenticator(),
        limits=GatewayLimits(),
        clock=SystemClock(),
    )
    port = await worker.start("127.0.0.1", 0)
    try:
        yield worker, f"ws://127.0.0.1:{port}"
    finally:
        await worker.stop(drain_seconds=1)


def listening(server: Serving, tmp_path: Path) -> Path:
    """The engine's socket for workers."""
    path = tmp_path / "e.sock"
    loop = server.loop
    asyncio.run_coroutine_threadsafe(server.service.links.start(path), loop).result(60)
    return path


async def over_two_workers(server: Serving, socket: Path) -> None:
    async with (
        worker_of(server, socket) as (_, first),
        worker_of(server, socket) as (_, second),
        connect(first) as writer,
        connect(second) as reader,
    ):
        assert not_ready_reason(server.service, workers=2) is None
        await writer.define(ONTOLOGY)
        watch = await reader.watch(WATCH).ready()
        assert (await watch.next(timeout=60)) is not None
        await writer.execute("SPAWN t: Task { n = 7 }")
        event = await watch.next(timeout=60)
        assert event is not None
        assert event.match == {"t.n": 7}
    async with asyncio.timeout(TIMEOUT_SECONDS):
        # Clients and links of a worker end one after the other, a moment after the worker.
        table = server.service.engine.broker.subscriptions
        while table.clients or not_ready_reason(server.service, workers=2) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert not_ready_reason(server.service, workers=2) == "no gateway worker is connected"
    assert not_ready_reason(server.service, workers=0) is None


def test_workers_of_one_engine_share_everything(tmp_path: Path):
    with Serving(tmp_path / "data") as server:
        asyncio.run(over_two_workers(server, listening(server, tmp_path)))


async def losing_the_link(server: Serving, socket: Path) -> None:
    """The link breaks: clients are sent away, the worker links up again, and they go on where they were."""
    async with worker_of(server, socket) as (worker, url), connect(server.url) as writer:
        await writer.define(ONTOLOGY)
        async with connect(url) as reader:
            watch = await reader.watch(WATCH).ready()
            assert (await watch.next(timeout=60)) is not None
            for port in list(server.service.links.ports):
                server.on_loop(port.abort)
            await writer.execute("SPAWN t: Task { n = 1 }")
            event = await watch.next(timeout=60)
            assert event is not None
            assert (event.type, event.match) == ("added", {"t.n": 1}), "resumed, nothing lost"
            assert worker.linked.is_set()


def test_a_worker_reconnects_its_broken_link(tmp_path: Path):
    with Serving(tmp_path / "data") as server:
        asyncio.run(losing_the_link(server, listening(server, tmp_path)))


async def strangers(server: Serving, socket: Path) -> list[str]:
    """What those hear who do not belong: a wrong secret, another version, garbage."""
    replies = []
    secret = server.service.secret
    for first in (
        encode_batch([link.Hello(version=LINK_VERSION, secret=b"guess", name="x")]),
        encode_batch([link.Hello(version=99, secret=secret, name="x")]),
        encode_batch([link.CloseConnection(conn=1, clean=True, may_resume=False)]),
        b"\x00\x00\x00\x04junk",
        b"\x00\x01\x00\x00",
        b"\xff\xff\xff\xff",
    ):
        reader, writer = await asyncio.open_unix_connection(str(socket))
        writer.write(first)
        data = await asyncio.wait_for(reader.read(), 60)
        replies += [
            r.reason
            for f in FrameSplitter(MAX_FRAME_BYTES).feed(data)
            for r in decode_batch(f, from_gateway=False)
        ]
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    return replies


def test_links_without_the_secret_are_refused(tmp_path: Path):
    with Serving(tmp_path / "data") as server:
        replies = asyncio.run(strangers(server, listening(server, tmp_path)))
        assert len(replies) == 2
        assert "secret" in replies[0]
        assert "version" in replies[1]
        assert not server.service.links.ports


def test_a_worker_with_the_wrong_secret_reports_it(tmp_path: Path):
    async def start(socket: Path) -> None:
        worker = GatewayWorker(
            socket=socket,
            secret=b"x" * 32,
            authenticator=LoopbackAuthenticator(),
            limits=GatewayLimits(),
            clock=SystemClock(),
        )
        with pytest.raises(PermissionError, match="secret"):
            await worker.start("127.0.0.1", 0)

    with Serving(tmp_path / "data") as server:
        asyncio.run(start(listening(server, tmp_path)))


def test_an_overloaded_engine_answers_every_request():
    """Through a worker: each request is answered, and a subscription that cannot catch up gets a resync."""

    class Written(asyncio.Transport):
        data = b""

        def write(self, data: Any) -> None:
            self.data += data

        def is_closing(self) -> bool:
            return False

        def get_write_buffer_size(self) -> int:
            return 0

    async def refused() -> list[Any]:
        engine = SimpleNamespace(post=lambda *_, **__: False)
        links = WorkerLinks(cast("Any", engine), b"s" * 32)
        port, transport = WorkerPort(links), Written()
        port.connection_made(transport)
        hello = link.Hello(version=LINK_VERSION, secret=b"s" * 32, name="w")
        asked = [
            link.ReplayRequest(conn=1, sub_id="s", seq=7),
            link.ExecuteRequest(conn=1, id="q", kind="execute", text="MATCH t: Task RETURN t"),
            link.SubscribeRequest(conn=1, sub_id="t", payload={}),
        ]
        port.data_received(encode_batch([hello]) + encode_batch(asked))
        frames = FrameSplitter(MAX_FRAME_BYTES).feed(transport.data)
        return [record for frame in frames for record in decode_batch(frame, from_gateway=False)]

    welcome, stale, statement, subscription = asyncio.run(refused())
    assert isinstance(welcome, link.Welcome)
    assert stale == link.ResyncRequired(conn=1, sub_id="s", reason="overflow")
    assert [(each.id, each.payload["code"]) for each in (statement, subscription)] == [
        ("q", "busy"),
        ("t", "busy"),
    ]

"""Write batching: each client gets the same bytes in the same order, in fewer writes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from vedette.gateway.limits import GatewayLimits
from vedette.gateway.server import router as switchboard
from vedette.gateway.server.auth import LoopbackAuthenticator
from vedette.gateway.server.listener import GatewayServer
from vedette.gateway.server.outbound import MAX_HELD_BYTES
from vedette.gateway.server.router import MAX_UNBATCHED_RUNS, ConnectionRouter
from vedette.gateway.server.websocket import WebSocketConnection
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.close_codes import CloseCode
from vedette.testing import ManualClock

HANDSHAKE = (
    b"GET /realtime/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
STREAMS, CLIENTS = 12, 3


class Line(asyncio.Transport):
    """A transport that keeps its writes, and has an outbox with a high mark."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.socket: WebSocketConnection | None = None
        self.taken = True
        self.waiting = self.high = 0
        self.over = self.broken = False

    def write(self, data: Any) -> None:
        if self.broken:
            raise OSError("unexpected")
        self.writes.append(bytes(data))
        if not self.taken:
            outbox_filled, self.waiting = self.waiting >= self.high, self.waiting + len(data)
            if not outbox_filled and self.waiting >= self.high and self.socket is not None:
                self.socket.pause_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high or 0

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def pause_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self.over

    def close(self) -> None:
        self.over = True

    def abort(self) -> None:
        self.over = True


class Gateway:
    """Clients with a stream each, or several, behind real shells."""

    def __init__(self, limits: GatewayLimits | None = None) -> None:
        self.clock = ManualClock()
        self.router = ConnectionRouter(
            limits=limits or GatewayLimits(),
            authenticator=LoopbackAuthenticator(),
            clock=self.clock,
            submit=lambda _: True,
        )
        server = GatewayServer(self.router, clock=self.clock)
        self.lines = [Line() for _ in range(CLIENTS)]
        for line in self.lines:
            line.socket = WebSocketConnection(server.sockets)
            line.socket.connection_made(line)
            line.socket.data_received(HANDSHAKE)
            line.socket.data_received(said({"type": "auth", "id": "a", "payload": {"database": "d"}}))
        self.conns = list(self.router.connections)
        self.router.deliver([link.ConnectionOpened(conn=conn, id="a") for conn in self.conns])
        for stream in range(STREAMS):
            self.router.deliver([subscribed(self.conns[stream % CLIENTS], stream)])
        for line in self.lines:
            line.writes.clear()

    def received(self) -> list[bytes]:
        return [b"".join(line.writes) for line in self.lines]


def said(message: dict[str, Any]) -> bytes:
    return Frame(Opcode.TEXT, json.dumps(message).encode()).serialize(mask=True)


def subscribed(conn: int, stream: int) -> link.Subscribed:
    return link.Subscribed(
        conn=conn, sub_id=f"s{stream}", stream=stream, seq=0, messages=[b"{}"], event_prefix=b"<"
    )


def published(stream: int, seq: int, size: int = 1) -> link.StreamEvent:
    return link.StreamEvent(stream=stream, seq=seq, suffix=b"%d" % seq + b"x" * size + b">", committed_at=0.0)


def records(script: list[tuple[str, int]], conns: list[int]) -> list[Any]:
    """A batch, without records for connections that have closed."""
    batch: list[Any] = []
    for seq, (kind, number) in enumerate(script, start=1):
        conn, stream = conns[number % CLIENTS], number % STREAMS
        match kind:
            case "event":
                batch.append(published(stream, seq))
            case "large":
                batch.append(published(stream, seq, MAX_HELD_BYTES // 2))
            case "answer":
                batch.append(link.Reply(conn=conn, data=b'{"answer":%d}' % seq))
            case "stale":
                batch.append(
                    link.ResyncRequired(conn=conns[stream % CLIENTS], sub_id=f"s{stream}", reason="gap")
                )
            case "left":
                batch.append(link.Unsubscribed(conn=conns[stream % CLIENTS], sub_id=f"s{stream}", data=b"{}"))
            case "again":
                batch.append(subscribed(conns[stream % CLIENTS], stream))
            case "closed":
                payload = {"code": "internal", "message": "no"}
                batch.append(
                    link.RequestFailed(conn=conn, id=None, payload=payload, close=CloseCode.TRY_LATER)
                )
            case "broken":
                batch.append(object())
    return batch


KINDS = st.sampled_from(["event"] * 6 + ["large", "answer", "stale", "left", "again", "closed", "broken"])


@given(st.lists(st.tuples(KINDS, st.integers(0, 11)), min_size=1, max_size=60))
@settings(max_examples=150, deadline=None)
def test_batching_does_not_change_the_bytes(script: list[tuple[str, int]]):
    async def both() -> None:
        corked, plain = Gateway(), Gateway()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(switchboard, "MAX_UNBATCHED_RUNS", 0)
            corked.router.deliver(records(script, corked.conns))
            patch.setattr(switchboard, "MAX_UNBATCHED_RUNS", 1_000)
            plain.router.deliver(records(script, plain.conns))
        assert corked.received() == plain.received()
        assert corked.router.counters == plain.router.counters
        for one, other in zip(corked.lines, plain.lines, strict=True):
            assert len(one.writes) <= len(other.writes)

    asyncio.run(both())


def test_a_socket_is_written_once_per_batch():
    async def once() -> None:
        gateway = Gateway()
        gateway.router.deliver([published(stream, 1) for stream in range(STREAMS)])
        assert [len(line.writes) for line in gateway.lines] == [1] * CLIENTS
        assert gateway.router.counters.delivered == STREAMS

    asyncio.run(once())


def test_small_batches_are_written_at_once():
    async def directly() -> None:
        gateway = Gateway()
        gateway.router.deliver([published(stream, 1) for stream in range(MAX_UNBATCHED_RUNS)])
        assert sum(len(line.writes) for line in gateway.lines) == MAX_UNBATCHED_RUNS

    asyncio.run(directly())


def test_held_frames_are_bounded():
    async def bounded() -> None:
        gateway, size = Gateway(), MAX_HELD_BYTES // 4
        gateway.router.deliver(
            [published(stream, seq, size) for seq in range(1, 9) for stream in range(STREAMS)]
        )
        for line in gateway.lines:
            assert len(line.writes) == 8
            assert all(len(each) < MAX_HELD_BYTES + 2 * size for each in line.writes)

    asyncio.run(bounded())


def test_a_full_outbox_during_a_batch_affects_only_its_client():
    async def behind() -> None:
        gateway = Gateway(GatewayLimits(outbox_high_bytes=MAX_HELD_BYTES, outbox_low_bytes=1024))
        stuck, size = gateway.lines[0], MAX_HELD_BYTES // 4
        stuck.taken = False
        gateway.router.deliver(
            [published(stream, seq, size) for seq in range(1, 9) for stream in range(STREAMS)]
        )
        assert len(b"".join(stuck.writes)) < 2 * MAX_HELD_BYTES
        assert all(len(line.writes) == 8 for line in gateway.lines[1:])
        connection = gateway.router.connections[gateway.conns[0]]
        assert connection.outbox_full
        assert all(sub.holds for sub in connection.subscriptions.values())

    asyncio.run(behind())


def test_a_failing_write_closes_only_its_connection():
    async def alone() -> None:
        gateway = Gateway()
        gateway.lines[0].broken = True
        gateway.router.deliver([published(stream, 1) for stream in range(STREAMS)])
        assert [len(line.writes) for line in gateway.lines] == [0, 1, 1]
        gateway.lines[0].broken = False
        gateway.router.deliver([published(stream, 2) for stream in range(STREAMS)])
        assert [b"2x>" in b"".join(line.writes) for line in gateway.lines] == [False, True, True]

    asyncio.run(alone())


def test_a_disconnect_during_a_batch_does_not_affect_others():
    async def gone() -> None:
        gateway = Gateway()
        batch = [published(stream, 1) for stream in range(STREAMS)]
        gateway.router.deliver(
            [*batch, link.Drain(seconds=1.0), *[published(stream, 2) for stream in range(STREAMS)]]
        )
        for line in gateway.lines:
            frames = b"".join(line.writes)
            assert frames.count(b"1x>") == STREAMS // CLIENTS, "what came before the goodbye is before it"
            assert b"2x>" not in frames
            assert frames.index(b"1x>") < frames.index(b"the server is stopping")

    asyncio.run(gone())


def test_latency_of_batched_events_ends_at_the_write():
    async def timed() -> None:
        gateway = Gateway()
        writing = gateway.lines[0].write

        def slowly(data: Any) -> None:
            gateway.clock.advance(3.0)
            writing(data)

        gateway.lines[0].write = slowly  # type: ignore[method-assign]
        began = gateway.clock.monotonic()
        gateway.router.deliver(
            [
                link.StreamEvent(stream=stream, seq=1, suffix=b">", committed_at=began)
                for stream in range(STREAMS)
            ]
        )
        (delays,) = gateway.router.counters.delays.values()
        assert delays.seconds == pytest.approx(3.0 * STREAMS)

    asyncio.run(timed())

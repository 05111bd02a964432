"""A WebSocket connection fed with bytes in any pieces: releasing the idle parser never loses a byte."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from vedette.gateway.limits import GatewayLimits
from vedette.gateway.server.auth import LoopbackAuthenticator
from vedette.gateway.server.listener import GatewayServer
from vedette.gateway.server.router import ConnectionRouter
from vedette.gateway.server.websocket import WebSocketConnection
from vedette.testing import ManualClock

HANDSHAKE = (
    b"GET /realtime/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class Recorder(asyncio.Transport):
    """A transport that only remembers."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()

    def write(self, data: Any) -> None:
        self.written += data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass


frames = st.lists(
    st.tuples(st.integers(0, 300), st.sampled_from(["text", "ping", "fragments"])), min_size=1, max_size=6
)


def as_bytes(number: int, size: int, kind: str) -> bytes:
    text = json.dumps({"type": "nonsense", "id": str(number), "payload": "x" * size}).encode()
    if kind == "ping":
        return Frame(Opcode.PING, b"p").serialize(mask=True) + as_bytes(number, size, "text")
    if kind == "fragments":
        half = len(text) // 2
        first = Frame(Opcode.TEXT, text[:half], fin=False).serialize(mask=True)
        return first + Frame(Opcode.CONT, text[half:]).serialize(mask=True)
    return Frame(Opcode.TEXT, text).serialize(mask=True)


@given(frames, st.data())
@settings(max_examples=80, deadline=None)
def test_messages_in_any_pieces_are_answered_once(script: list[tuple[int, str]], data: st.DataObject):
    stream = HANDSHAKE + b"".join(as_bytes(n, size, kind) for n, (size, kind) in enumerate(script))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(stream) - 1), max_size=40)))
    asyncio.run(feed(stream, [0, *cuts, len(stream)], len(script)))


async def feed(stream: bytes, places: list[int], count: int) -> None:
    clock = ManualClock()
    router = ConnectionRouter(
        limits=GatewayLimits(), authenticator=LoopbackAuthenticator(), clock=clock, submit=lambda _: True
    )
    socket, transport = WebSocketConnection(GatewayServer(router, clock=clock).sockets), Recorder()
    socket.connection_made(transport)
    for start, end in pairwise(places):
        socket.data_received(stream[start:end])
    answers = transport.written.split(b"\r\n\r\n", 1)[1]
    assert [answers.count(b'"id":"%d"' % n) for n in range(count)] == [1] * count
    assert socket.is_idle

"""Frames are parsed as `websockets` parses them, whatever the frames and wherever the bytes are cut."""

from __future__ import annotations

import asyncio
import os
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.frames import Close, Frame, Opcode
from websockets.protocol import Protocol, Side

from vedette.gateway.limits import GatewayLimits
from vedette.gateway.server.outbound import OutboundFrame, WriteBatcher
from vedette.gateway.server.sockets import SocketSet
from vedette.gateway.server.websocket import PATH, WebSocketConnection
from vedette.testing import ManualClock

HANDSHAKE = (
    f"GET {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
).encode()
LARGEST = 300


class Line:
    """A transport that remembers what was written; with a real socket (a pipe) underneath, or none."""

    def __init__(self, *, real: bool = False) -> None:
        self.written = bytearray()
        self.closed = False
        self.waiting = 0
        self._read, self._written_to = os.pipe()
        os.set_blocking(self._written_to, False)
        if not real:
            os.close(self._written_to)
            self._written_to = -1

    def get_extra_info(self, name: str) -> Line:
        assert name == "socket"
        return self

    def fileno(self) -> int:
        return self._written_to

    def in_the_socket(self) -> bytes:
        return os.read(self._read, 1_000_000)

    def end(self) -> None:
        os.close(self._read)
        if self._written_to >= 0:
            os.close(self._written_to)

    def write(self, data: bytes) -> None:
        self.written += data
        self.waiting += len(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.waiting


class FakeRouter:
    """Takes messages."""

    full = False
    authenticator = None

    def __init__(self) -> None:
        self.write_batcher = WriteBatcher()
        self.limits = GatewayLimits(max_frame_bytes=LARGEST, first_frame_bytes=LARGEST)
        self.messages: list[bytes] = []

    def connect(self, _: Any) -> FakeRouter:
        return self

    grant = None

    def receive(self, data: bytes) -> None:
        self.messages.append(data)

    def send_error(self, code: str, text: str) -> None:
        assert (code, bool(text)) == ("invalid_frame", True)


def through_the_shell(parts: list[bytes]) -> tuple[list[bytes], bytes]:
    """Messages that were understood, and what was answered."""
    router, line = FakeRouter(), Line()
    sockets = SocketSet(cast("Any", router), clock=ManualClock(), allowed_origins=(), uses_tls=False)
    cast("Any", sockets.buffers).mark_written = lambda _: None
    socket = WebSocketConnection(sockets)
    socket.connection_made(cast("asyncio.BaseTransport", line))
    socket.data_received(HANDSHAKE)
    assert line.written.startswith(b"HTTP/1.1 101 ")
    line.written.clear()
    for part in parts:
        if not line.closed:
            socket.data_received(part)
    line.end()
    return router.messages, bytes(line.written)


def through_the_twin(data: bytes) -> tuple[list[bytes], bytes]:
    protocol = Protocol(Side.SERVER, max_size=LARGEST)
    protocol.receive_data(data)
    messages: list[bytes] = []
    pieces: list[bytes] | None = None
    for frame in protocol.events_received():
        assert isinstance(frame, Frame)
        if frame.opcode is Opcode.TEXT:
            pieces = [bytes(frame.data)]
        elif frame.opcode is Opcode.CONT and pieces is not None:
            pieces.append(bytes(frame.data))
        if frame.fin and frame.opcode in (Opcode.TEXT, Opcode.CONT) and pieces is not None:
            messages.append(b"".join(pieces))
            pieces = None
    return messages, b"".join(protocol.data_to_send())


def frame(opcode: int, payload: bytes, *, fin: bool, mask: bytes | None, reserved: int, form: int) -> bytes:
    """A frame as a client makes it, or should not: `form` 1 and 2 spell the length longer than needed."""
    first = (0x80 if fin else 0) | reserved << 4 | opcode
    size, masked = len(payload), 0x80 if mask is not None else 0
    if form == 2 or size > 65_535:
        head = bytes((first, masked | 127)) + size.to_bytes(8, "big")
    elif form == 1 or size > 125:
        head = bytes((first, masked | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((first, masked | size))
    if mask is None:
        return head + payload
    return head + mask + bytes(byte ^ mask[n % 4] for n, byte in enumerate(payload))


payloads = st.binary(max_size=8) | st.sampled_from(
    [b"", b"{}", b"x" * 125, b"x" * 126, b"x" * 300, b"x" * 301]
)
usual = st.builds(
    frame,
    st.sampled_from([1, 1, 1, 10, 9, 0, 2]),
    payloads,
    fin=st.sampled_from([True, True, True, False]),
    mask=st.binary(min_size=4, max_size=4),
    reserved=st.just(0),
    form=st.just(0),
)
strange = st.builds(
    frame,
    st.integers(0, 15),
    payloads,
    fin=st.booleans(),
    mask=st.none() | st.binary(min_size=4, max_size=4),
    reserved=st.integers(0, 7),
    form=st.integers(0, 2),
)
closing = st.just(
    frame(Opcode.CLOSE, Close(1000, "").serialize(), fin=True, mask=b"abcd", reserved=0, form=0)
)
frames = st.lists(st.one_of(usual, usual, usual, strange, closing), max_size=8).map(b"".join)


@given(frames, st.lists(st.integers(0, 2_000), max_size=6))
@settings(max_examples=400)
def test_frames_are_parsed_as_websockets_parses_them(data: bytes, cuts: list[int]):
    async def socket() -> tuple[list[bytes], bytes]:
        places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
        parts = [data[a:b] for a, b in pairwise(places)]
        return through_the_shell(parts)

    assert asyncio.run(socket()) == through_the_twin(data)


def opened(line: Line) -> tuple[WebSocketConnection, list[WebSocketConnection]]:
    """A shell at an open line, and those that have said that something waits for them."""
    sockets = SocketSet(cast("Any", FakeRouter()), clock=ManualClock(), allowed_origins=(), uses_tls=False)
    behind = list[WebSocketConnection]()
    cast("Any", sockets.buffers).mark_written = behind.append
    socket = WebSocketConnection(sockets)
    socket.connection_made(cast("asyncio.BaseTransport", line))
    socket.data_received(HANDSHAKE)
    line.written.clear()
    line.waiting = 0
    return socket, behind


def test_bytes_that_do_not_fit_the_socket_go_through_the_transport_in_order():
    async def scenario() -> None:
        line = Line(real=True)
        socket, behind = opened(line)
        small, large = OutboundFrame(b"small"), OutboundFrame(b"x" * 1_000_000)
        socket.send(small)
        assert line.in_the_socket() == small.framed
        assert (bytes(line.written), len(behind)) == (b"", 0)
        socket.send(large)
        head = line.in_the_socket()
        assert head + line.written == large.framed
        assert head, "as much as there was room for"
        assert behind == [socket]
        socket.send(small)
        assert head + line.written == large.framed + small.framed, "not past what waits"
        line.end()

    asyncio.run(scenario())


def test_a_closing_transport_is_never_written_directly():
    """Its descriptor may be another connection's already."""

    async def scenario() -> None:
        line = Line(real=True)
        socket, _ = opened(line)
        line.close()
        socket.send(OutboundFrame(b"secret"))
        os.set_blocking(line._read, False)
        with pytest.raises(BlockingIOError):
            line.in_the_socket()
        line.end()

    asyncio.run(scenario())


def test_opcodes_are_those_of_the_library():
    assert (Opcode.TEXT, Opcode.PONG) == (1, 10)

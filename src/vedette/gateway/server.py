"""The thin shell: sockets on one side, the switchboard on the other.

Each connection is an `asyncio.Protocol` around websockets' own protocol without I/O: it reads and answers frames, this
moves bytes. What is sent to many is framed once (`parcel.py`) and written to every transport; nothing is awaited per
receiver. The transport's buffer is the client's outbox, its limits the high and low marks.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import resource
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from heapq import heapify, heappop, heappush
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from websockets.exceptions import InvalidHandshake
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import Protocol as WebSocketProtocol
from websockets.protocol import Side
from websockets.protocol import State as WebSocketState
from websockets.server import ServerProtocol

try:
    from websockets.speedups import apply_mask
except ImportError:  # a platform without the compiled part
    from websockets.utils import apply_mask

from vedette.clock import Clock
from vedette.errors import SettingsError
from vedette.gateway.auth import OpenDoor
from vedette.gateway.close_codes import CloseCode
from vedette.gateway.local_socket import clear, close_to_others
from vedette.gateway.parcel import Bundle, Parcel
from vedette.gateway.protocol import Connection
from vedette.gateway.switchboard import Switchboard

__all__ = ["PATH", "GatewayServer", "WebSocketShell", "check_exposure", "is_loopback", "origin_allowed"]

log = logging.getLogger(__name__)
PATH = "/realtime/ws"
_quiet = logging.getLogger("vedette.gateway.websockets")
_quiet.setLevel(logging.CRITICAL)
_PING = bytes((0x89, 0x00))
_TEXT, _PONG = 0x81, 0x8A
"""First bytes of frames that are whole."""
_BUCKETS = 16
"""Heartbeats are spread: in each part of the interval a part of the connections."""
_MEASURE_SECONDS = 0.1
_CLOSE_SECONDS = 5.0
_OTHER_DESCRIPTORS = 2_048
"""For stores, links and HTTP."""
_FEW = 1_000
_FIRST_STEP = "at_eof"
"""What websockets' parser waits in before the first byte of a frame; within one it waits elsewhere."""


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_exposure(host: str, *, guarded: bool) -> None:
    """Without authentication only this machine may connect."""
    if not guarded and not is_loopback(host):
        text = f"Listening on {host} without authentication would let anyone in: set auth_keys, or listen on 127.0.0.1"
        raise SettingsError("E0101", text, fields={"setting": "auth_keys"})


def origin_allowed(origin: str | None, host: str, allowed: tuple[str, ...], *, guarded: bool) -> bool:
    """No origin: no web page. The server's own host is fine, as long as that cannot be a name made to point here."""
    if not origin:
        return True
    if origin in allowed:
        return True
    name = urlsplit(origin).hostname or ""
    own = urlsplit(f"//{host}").hostname or ""
    return name == own and (guarded or is_loopback(name))


def _innermost(generator: Any) -> str:
    """The name of the generator that is being waited in."""
    while (inner := getattr(generator, "gi_yieldfrom", None)) is not None:
        generator = inner
    return str(getattr(generator, "__name__", ""))


def most_sockets(connections: int) -> int:
    """Connections and some that have yet to shake hands; never so many that the process has no descriptors left."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + max(64, connections // 10)
    return wanted if allowed == resource.RLIM_INFINITY else max(64, min(wanted, allowed - _OTHER_DESCRIPTORS))


class GatewayServer:
    """Listens, and keeps the time of all its connections."""

    def __init__(
        self,
        board: Switchboard,
        *,
        clock: Clock,
        allowed_origins: tuple[str, ...] = (),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.board = board
        self.clock = clock
        self.allowed_origins = allowed_origins
        self.guarded = not isinstance(board.authority, OpenDoor)
        self.tls = tls
        self.most_sockets = most_sockets(board.limits.max_connections)
        self.shells: set[WebSocketShell] = set()
        self.empty = asyncio.Event()
        """Set when the last connection has gone."""
        self.timed: set[WebSocketShell] = set()
        """Connections that something is due of: auth, closing, taking what waits for them."""
        self._buckets: list[set[WebSocketShell]] = [set() for _ in range(_BUCKETS)]
        self._expiring: dict[WebSocketShell, float] = {}
        """When the token of each connection ends, and below the same in order, with some that count no more."""
        self._expiries: list[tuple[float, int, WebSocketShell]] = []
        self._arrivals = 0
        self.waiting_bytes = 0
        """What waits for all clients together."""
        self._servers: list[asyncio.AbstractServer] = []
        self._backlog: set[WebSocketShell] = set()
        self._written: set[WebSocketShell] = set()
        self._measuring = False
        self._round = 0
        self._timers: list[asyncio.Task[None]] = []
        self._draining = False
        self.absent = False
        """Whether the engine cannot be reached: nobody is let in then."""

    async def start(self, host: str, port: int, *, reuse_port: bool = False) -> int:
        """Listen; returns the port, which was chosen when 0 was asked for."""
        check_exposure(host, guarded=self.guarded)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: WebSocketShell(self),
            host,
            port,
            reuse_port=reuse_port,
            ssl=self.tls,
            ssl_handshake_timeout=self.board.limits.auth_seconds if self.tls is not None else None,
            backlog=4096,
        )
        self._servers.append(server)
        self._keep_time()
        return int(server.sockets[0].getsockname()[1])

    async def start_local(self, path: Path) -> None:
        """Listen on a Unix socket too, for programs of this machine's same user."""
        clear(path)
        loop = asyncio.get_running_loop()
        self._servers.append(await loop.create_unix_server(lambda: WebSocketShell(self), str(path)))
        close_to_others(path)
        self._keep_time()

    def _keep_time(self) -> None:
        if not self._timers:
            loop = asyncio.get_running_loop()
            self._timers = [loop.create_task(self._beat()), loop.create_task(self._measure_often())]

    async def stop(self, *, drain_seconds: float = 5.0) -> None:
        """Tell every client to come back elsewhere, give them a moment, and end."""
        self._draining = True
        for server in self._servers:
            server.close()
        self.board.drain()
        if self.shells:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.empty.wait(), drain_seconds)
        for timer in self._timers:
            timer.cancel()
        for shell in list(self.shells):
            shell.abort()
        await asyncio.sleep(0)

    # --- time ---------------------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        """Twice a second: what is due. In each part of the heartbeat interval: a part of the connections."""
        part = self.board.limits.heartbeat_seconds / _BUCKETS
        due = self.clock.monotonic()
        while True:
            await asyncio.sleep(min(part, 0.5))
            try:
                self._check()
                while self.clock.monotonic() >= due:
                    due += part
                    self._round += 1
                    for shell in list(self._buckets[self._round % _BUCKETS]):
                        shell.beat()
            except Exception:
                log.exception("A round of heartbeats failed", extra={"action": "gateway.beat_failed"})

    def _check(self) -> None:
        now, moment = self.clock.monotonic(), self.clock.now()
        for shell in list(self.timed):
            shell.check(now)
        while self._expiries and self._expiries[0][0] <= moment.timestamp():
            at, _, shell = heappop(self._expiries)
            if self._expiring.get(shell) == at:
                del self._expiring[shell]
                shell.expire(moment)

    def arrived(self, shell: WebSocketShell) -> None:
        if len(self.shells) >= self.most_sockets:
            shell.abort()  # there is no room even for saying so
            return
        self._arrivals += 1
        self.shells.add(shell)
        self.empty.clear()
        self.timed.add(shell)
        shell.bucket = self._arrivals % _BUCKETS
        self._buckets[shell.bucket].add(shell)

    def expires(self, shell: WebSocketShell, at: float) -> None:
        """Look at the shell again when its token ends; a token that it showed before counts no more."""
        self._arrivals += 1
        self._expiring[shell] = at
        heappush(self._expiries, (at, self._arrivals, shell))
        if len(self._expiries) > 2 * len(self._expiring) + _FEW:  # else tokens would keep who has long gone
            self._expiries = [each for each in self._expiries if self._expiring.get(each[2]) == each[0]]
            heapify(self._expiries)

    async def _measure_often(self) -> None:
        while True:
            await asyncio.sleep(_MEASURE_SECONDS)
            self._written |= self._backlog
            self._measure()

    def wrote(self, shell: WebSocketShell) -> None:
        """Bytes were given to a transport: see, when this round of the loop is over, how many wait there."""
        self._written.add(shell)
        if not self._measuring:
            self._measuring = True
            asyncio.get_running_loop().call_soon(self._measure)

    def _measure(self) -> None:
        self._measuring = False
        for shell in self._written:
            size = shell.buffered()
            self.waiting_bytes += size - shell.waiting
            shell.waiting = size
            if size:
                self._backlog.add(shell)
            else:
                self._backlog.discard(shell)
        self._written.clear()
        self.board.watermarks.measure(self.waiting_bytes)

    def gone(self, shell: WebSocketShell) -> None:
        self.shells.discard(shell)
        self.timed.discard(shell)
        self._expiring.pop(shell, None)
        self._buckets[shell.bucket].discard(shell)
        if not self.shells:
            self.empty.set()
        self._backlog.discard(shell)
        self._written.discard(shell)
        self.waiting_bytes -= shell.waiting
        shell.waiting = 0

    @property
    def refusing(self) -> bool:
        return self._draining or self.absent or self.board.full


class WebSocketShell(asyncio.Protocol):
    """One socket."""

    __slots__ = (
        "_closing_at",
        "_connection",
        "_deadline",
        "_descriptor",
        "_fragments",
        "_heard",
        "_most_bytes",
        "_pinged",
        "_protocol",
        "_sent_code",
        "_server",
        "_stuck_at",
        "_transport",
        "bucket",
        "waiting",
    )

    def __init__(self, server: GatewayServer) -> None:
        self._server = server
        limits = server.board.limits
        self._most_bytes = min(limits.first_frame_bytes, limits.max_frame_bytes)
        self._protocol: WebSocketProtocol | None = ServerProtocol(max_size=self._most_bytes, logger=_quiet)
        """None between two messages of an open connection: it holds nothing then, and most connections are idle."""
        self._transport: asyncio.Transport | None = None
        self._descriptor = -1
        """The socket, unless there is TLS in between. It may be another's once the transport is closing."""
        self._connection: Connection | None = None
        self._fragments: bytearray | None = None
        """Of a message that has begun; the protocol bounds it."""
        self._deadline: float | None = server.clock.monotonic() + limits.auth_seconds
        """When it must have shown who it is."""
        self._closing_at: float | None = None
        self._stuck_at: float | None = None
        self._sent_code: int | None = None
        self._heard = True
        self._pinged = 0
        self.bucket = 0
        self.waiting = 0

    # --- the transport ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        limits = self._server.board.limits
        self._transport.set_write_buffer_limits(limits.outbox_high_bytes, limits.outbox_low_bytes)
        line = transport.get_extra_info("socket") if self._server.tls is None else None
        if line is not None:
            self._descriptor = line.fileno()
        self._server.arrived(self)

    def data_received(self, data: bytes) -> None:
        self._heard = True
        rest = self._take_plain(data) if self._protocol is None else data
        if not rest:
            return
        protocol = self._awake()
        protocol.receive_data(rest)
        for event in protocol.events_received():
            self._guarded(self._happened, event)
        self._flush()
        self._rest()

    def _take_plain(self, data: bytes) -> bytes:
        """At rest, whole text frames and pongs need no protocol: nearly all that ever comes. Returns what is left."""
        place, size = 0, len(data)
        while size - place >= 6 and self._protocol is None and self._connection is not None:
            opcode, length, start = data[place], data[place + 1] ^ 0x80, place + 2
            if length == 126 and opcode == _TEXT:
                length, start = int.from_bytes(data[start : start + 2], "big"), start + 2
                if length < 126:
                    break
            elif length >= 126 or opcode not in (_TEXT, _PONG):
                break
            end = start + 4 + length
            if end > size or length > self._most_bytes:
                break
            if opcode == _TEXT:
                message = apply_mask(data[start + 4 : end], data[start : start + 4])
                self._guarded(self._take, message, self._connection)
            place = end
        return data[place:]

    def _guarded(self, work: Callable[..., None], *given: Any) -> None:
        """What goes wrong with one connection ends that one."""
        try:
            work(*given)
        except Exception:
            log.exception("A frame could not be handled", extra={"action": "gateway.frame_failed"})
            self.close(CloseCode.INTERNAL, "internal error")

    def _awake(self) -> WebSocketProtocol:
        """The protocol; made anew where the last one had come to rest."""
        if self._protocol is None:
            self._protocol = WebSocketProtocol(Side.SERVER, max_size=self._most_bytes, logger=_quiet)
        return self._protocol

    def _rest(self) -> None:
        """Between whole messages an open connection has no state: let go of what would hold it."""
        protocol = self._protocol
        if protocol is None or protocol.state is not WebSocketState.OPEN or self._fragments is not None:
            return
        if not protocol.reader.buffer and _innermost(protocol.parser) == _FIRST_STEP:
            self._protocol = None

    @property
    def at_rest(self) -> bool:
        return self._protocol is None

    def eof_received(self) -> bool:
        self._awake().receive_eof()
        self._flush()
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._server.gone(self)
        connection, self._connection = self._connection, None
        if connection is not None:
            said = self._protocol.close_rcvd if self._protocol is not None else None
            goodbye = said is not None and said.code in (1000, 1001) and self._sent_code is None
            asked = self._sent_code in (CloseCode.DRAINING, CloseCode.ENGINE_LOST)
            self._server.board.disconnect(connection, orderly=goodbye or asked, returns=not goodbye)

    def pause_writing(self) -> None:
        self._stuck_at = self._server.clock.monotonic() + self._server.board.limits.stuck_seconds
        self._server.timed.add(self)
        if self._connection is not None:
            self._server.board.clogged(self._connection)
        if self._transport is not None:
            self._transport.pause_reading()  # who does not listen is not heard

    def resume_writing(self) -> None:
        self._stuck_at = None
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        if self._connection is not None:
            self._server.board.freed(self._connection)

    # --- frames -------------------------------------------------------------------------------------------------

    def _happened(self, event: Any) -> None:
        if isinstance(event, Request):
            self._shake_hands(event)
        elif isinstance(event, Frame) and self._connection is not None:
            self._frame(event, self._connection)

    def _shake_hands(self, request: Request) -> None:
        protocol = self._protocol
        assert isinstance(protocol, ServerProtocol)
        refusal = self._refusal(request)
        if refusal is not None:
            protocol.send_response(protocol.reject(*refusal))
            return
        response = protocol.accept(request)
        protocol.send_response(response)
        self._flush()  # before anything that is said on the connection
        if response.status_code == HTTPStatus.SWITCHING_PROTOCOLS:
            self._connection = self._server.board.connect(self)

    def _refusal(self, request: Request) -> tuple[HTTPStatus, str] | None:
        path = urlsplit(request.path)
        if path.path.rstrip("/") != PATH:
            return HTTPStatus.NOT_FOUND, f"The realtime endpoint is {PATH}\n"
        if "token=" in path.query:
            return HTTPStatus.UNAUTHORIZED, "A token goes into the auth message, not into the address\n"
        try:
            origin, host = request.headers.get("Origin"), request.headers.get("Host", "")
        except (InvalidHandshake, LookupError):
            return HTTPStatus.BAD_REQUEST, "One Origin and one Host\n"
        server = self._server
        if not origin_allowed(origin, host, server.allowed_origins, guarded=server.guarded):
            return HTTPStatus.FORBIDDEN, "Pages of this origin may not connect\n"
        if server.refusing:
            return HTTPStatus.SERVICE_UNAVAILABLE, "As many connections as there may be\n"
        return None

    def _frame(self, frame: Frame, connection: Connection) -> None:
        if frame.opcode is Opcode.TEXT and frame.fin:
            self._take(frame.data, connection)
        elif frame.opcode is Opcode.TEXT:
            self._fragments = bytearray(frame.data)
        elif frame.opcode is Opcode.CONT and self._fragments is not None:
            self._fragments += frame.data
            if frame.fin:
                whole, self._fragments = self._fragments, None
                self._take(whole, connection)
        elif frame.opcode is Opcode.BINARY:
            connection.fail("invalid_frame", "messages are text frames with JSON")

    def _take(self, data: bytes | bytearray | memoryview, connection: Connection) -> None:
        before = connection.grant
        self._server.board.received(connection, bytes(data))
        grant = connection.grant
        if grant is None or grant is before:
            return
        if self._deadline is not None:
            self._deadline = None
            self._server.timed.discard(self)
            self._most_bytes = self._server.board.limits.max_frame_bytes
            if self._protocol is not None:
                self._protocol.max_message_size = self._most_bytes
        if grant.expires_at is not None:
            self._server.expires(self, grant.expires_at.timestamp())

    # --- a sink for the connection ------------------------------------------------------------------------------

    def send_all(self, bundle: Bundle) -> None:
        self.send(bundle)

    def send(self, parcel: Parcel | Bundle) -> None:
        transport = self._transport
        if transport is None or self._closing_at is not None:
            return
        framed = parcel.framed
        if self._descriptor >= 0 and not transport.get_write_buffer_size() and not transport.is_closing():
            framed = self._write_now(framed)
        if framed:
            transport.write(framed)
            self._server.wrote(self)

    def _write_now(self, framed: bytes) -> bytes:
        """Straight into the socket, which spares most of a transport's work; returns what did not fit."""
        try:
            written = os.write(self._descriptor, framed)
        except OSError:  # it is full, or broken: the transport will find out which
            return framed
        return framed[written:] if written < len(framed) else b""

    def close(self, code: int, reason: str) -> None:
        if self._closing_at is not None:
            return
        self._sent_code = code
        protocol = self._awake()
        if protocol.state is WebSocketState.OPEN:
            protocol.send_close(code, reason)
            self._flush()
        self._closing_at = self._server.clock.monotonic() + _CLOSE_SECONDS
        self._server.timed.add(self)

    def _flush(self) -> None:
        transport = self._transport
        for data in self._protocol.data_to_send() if self._protocol is not None else ():
            if transport is None or transport.is_closing():
                return
            if data:
                transport.write(data)
            else:
                transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def buffered(self) -> int:
        transport = self._transport
        return (
            transport.get_write_buffer_size() if transport is not None and not transport.is_closing() else 0
        )

    # --- time ---------------------------------------------------------------------------------------------------

    def beat(self) -> None:
        """Once per heartbeat interval: a sign of life to the client, and a look whether it gives one."""
        if self._connection is None or self._transport is None or self._closing_at is not None:
            return
        if self._heard:
            self._pinged = 0
        elif self._pinged >= 2:
            self._sent_code = CloseCode.SILENT
            self.abort()
            return
        self._heard = False
        self._pinged += 1
        if self._stuck_at is None:
            self._transport.write(_PING)
            self._connection.beat()

    def check(self, now: float) -> None:
        """End what is past its time."""
        if self._closing_at is not None:
            if now >= self._closing_at:
                self.abort()
        elif self._stuck_at is not None:
            if now >= self._stuck_at:
                self._sent_code = CloseCode.STUCK
                self.abort()
        elif self._deadline is None:
            self._server.timed.discard(self)
        elif now >= self._deadline and self._connection is not None:
            self._connection.end(CloseCode.AUTH_TIMEOUT, "auth was due")
        elif now >= self._deadline:
            self.abort()

    def expire(self, moment: datetime) -> None:
        if self._connection is not None:
            self._connection.expire(moment)

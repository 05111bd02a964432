"""The pipeline's end of the ingest link: sends frames and waits until they are accepted. Blocking, for workers."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from vedette.errors import PipelineError
from vedette.transport.ingest_messages import (
    Accepted,
    Complete,
    Deliver,
    DeliveredChange,
    Frame,
    FrameReader,
    Hello,
    Refused,
    Status,
    Welcome,
    WindowResult,
    encode_frame,
)

__all__ = ["IngestClient", "open_client"]

T = TypeVar("T")
TIMEOUT_SECONDS = 10.0
"""Time without an answer after which a gateway counts as dead."""
MAX_FRAME_CHANGES = 500
"""Changes per frame. A gateway can process a frame while later ones are in transit."""
MAX_CHUNK_BYTES = 4 * 1024 * 1024
"""Target size of a frame, far below `MAX_FRAME_BYTES`; a larger item gets its own frame."""
_NUMBER_BYTES = 9
_CHARACTER_BYTES = 4
"""Upper bounds for the encoded size of a number and a character."""


def open_client(address: str, secret: str, sender: str) -> IngestClient:
    """Open a link to `host:port` or to the path of a Unix socket. Raise PipelineError E6301 on failure."""
    opened = IngestClient(_connect(address), address)
    try:
        opened._handshake(Hello(secret=secret, sender=sender))
    except PipelineError:
        opened.close()
        raise
    return opened


def _connect(address: str) -> socket.socket:
    try:
        if "/" not in address:
            host, _, port = address.rpartition(":")
            link = socket.create_connection((host.strip("[]"), int(port)), TIMEOUT_SECONDS)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return link
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.settimeout(TIMEOUT_SECONDS)
        try:
            link.connect(address)
        except OSError:
            link.close()
            raise
        return link
    except (OSError, ValueError) as problem:
        raise _unreachable(address, str(problem)) from problem


class IngestClient:
    def __init__(self, link: socket.socket, address: str) -> None:
        self._link, self._address = link, address
        self._reader = FrameReader()
        self._number = 0
        self._accepted = 0

    def _handshake(self, hello: Hello) -> None:
        self._send(hello)
        while not self._read():
            pass

    def send_changes(self, changes: Sequence[DeliveredChange]) -> None:
        """Send changes in frames of bounded size. The gateway has them once `wait_until_accepted` returns."""
        for chunk in _chunks(changes, _encoded_size):
            self._number += 1
            self._send(Deliver(number=self._number, changes=chunk))

    def send_window_events(self, windows: Sequence[WindowResult]) -> None:
        for chunk in _chunks(windows, lambda result: len(result.payload)):
            self._number += 1
            self._send(Deliver(number=self._number, windows=chunk))

    def send(self, frame: Complete | Status) -> None:
        """Send a frame without waiting for acceptance. A caller that needs certainty must send it again."""
        self._send(frame)

    def wait_until_accepted(self) -> None:
        """Wait until all deliveries are accepted."""
        while self._accepted < self._number:
            self._read()

    def close(self) -> None:
        self._link.close()

    def _send(self, frame: Frame) -> None:
        try:
            self._link.sendall(encode_frame(frame))
        except OSError as problem:
            raise _unreachable(self._address, str(problem)) from problem

    def _read(self) -> bool:
        """Read available frames. Return True if the gateway accepted the handshake."""
        try:
            data = self._link.recv(65_536)
        except OSError as problem:
            raise _unreachable(self._address, str(problem)) from problem
        if not data:
            raise _unreachable(self._address, "the gateway closed the link")
        welcome = False
        for frame in self._reader.feed(data):
            match frame:
                case Accepted(number=number):
                    self._accepted = max(self._accepted, number)
                case Welcome():
                    welcome = True
                case Refused(reason=reason):
                    raise _unreachable(self._address, reason)
        return welcome


def _chunks(items: Sequence[T], weight_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Split items, in order, into lists of bounded length and size."""
    chunk: list[T] = []
    size = 0
    for item in items:
        weight = weight_of(item)
        if chunk and (len(chunk) >= MAX_FRAME_CHANGES or size + weight > MAX_CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(item)
        size += weight
    if chunk:
        yield chunk


def _encoded_size(change: DeliveredChange) -> int:
    """Return an upper estimate of the encoded size."""
    numbers = len(change.enter) + len(change.update) + len(change.leave)
    images = len(change.before or b"") + len(change.after or b"")
    return images + _NUMBER_BYTES * numbers + _CHARACTER_BYTES * len(change.key)


def _unreachable(address: str, reason: str) -> PipelineError:
    text = (
        f"the gateway at {address} did not accept a delivery ({reason}): it is retried while its lease lasts"
    )
    return PipelineError("E6301", text, fields={"address": address})

"""Outgoing messages: framed once for all receivers, and written once per socket and batch.

`WriteBatcher` collects the frames of a batch by socket. A write is a third of the cost of delivering an event, and it
releases the GIL, which the engine thread may then hold for a while. A socket is written before the batch ends if
`MAX_HELD_BYTES` are held for it, and before it is closed. Held frames are not in the outbox yet, so marks and limits
apply at the write.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["MAX_HELD_BYTES", "FrameBatch", "OutboundFrame", "WriteBatcher", "text_frame"]

_FIN_TEXT = 0x81


def text_frame(message: bytes) -> bytes:
    """Return an unfragmented, unmasked text frame (RFC 6455)."""
    size = len(message)
    if size < 126:
        return bytes((_FIN_TEXT, size)) + message
    if size < 65_536:
        return bytes((_FIN_TEXT, 126)) + size.to_bytes(2, "big") + message
    return bytes((_FIN_TEXT, 127)) + size.to_bytes(8, "big") + message


class OutboundFrame:
    __slots__ = ("framed", "message")

    def __init__(self, message: bytes) -> None:
        self.message = message
        self.framed = text_frame(message)


class FrameBatch:
    """Several messages for the same receivers, framed as one block."""

    __slots__ = ("framed", "frames")

    def __init__(self, messages: list[bytes]) -> None:
        self.frames = [OutboundFrame(message) for message in messages]
        self.framed = b"".join([frame.framed for frame in self.frames])


MAX_HELD_BYTES = 65_536


class BatchedWriter(Protocol):
    """A socket whose frames can be held."""

    def write_batch(self, framed: bytes) -> None:
        """Write the held frames. Must not raise, because other sockets follow."""


class _Held:
    __slots__ = ("frames", "size")

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.size = 0


class WriteBatcher:
    """Use as a context manager. While active, senders `add` frames instead of writing them; leaving it writes all."""

    __slots__ = ("_held", "active")

    def __init__(self) -> None:
        self.active = False
        self._held: dict[BatchedWriter, _Held] = {}

    def __enter__(self) -> None:
        self.active = True

    def __exit__(self, *_: object) -> None:
        self.active = False
        held, self._held = self._held, {}
        for sender, each in held.items():
            sender.write_batch(b"".join(each.frames))

    def add(self, sender: BatchedWriter, framed: bytes) -> None:
        held = self._held.get(sender)
        if held is None:
            held = self._held[sender] = _Held()
        held.frames.append(framed)
        held.size += len(framed)
        if held.size >= MAX_HELD_BYTES:
            self.flush(sender)

    def flush(self, sender: BatchedWriter) -> None:
        """Write the frames held for one sender now."""
        held = self._held.pop(sender, None)
        if held is not None:
            sender.write_batch(b"".join(held.frames))

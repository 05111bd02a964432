"""Outgoing messages, encoded and framed once for all receivers."""

from __future__ import annotations

__all__ = ["FrameBatch", "OutboundFrame", "text_frame"]

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

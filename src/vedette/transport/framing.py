"""Length-prefixed frames of a byte stream: 4 bytes of length, big-endian, then the body. No I/O."""

from __future__ import annotations

__all__ = ["FrameSplitter", "FrameTooLarge", "add_length"]


class FrameTooLarge(ValueError):
    """A frame announces more bytes than its receiver allows."""


def add_length(body: bytes) -> bytes:
    """Return the frame of a body."""
    return len(body).to_bytes(4, "big") + body


class FrameSplitter:
    """Splits received bytes into frames."""

    def __init__(self, max_bytes: int) -> None:
        self._buffer = bytearray()
        self.max_bytes = max_bytes
        """Size limit of a body. It is low until the sender has authenticated."""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the bodies of the frames that are now complete. Raise FrameTooLarge if a length exceeds the limit."""
        buffer = self._buffer
        buffer += data
        frames: list[bytes] = []
        while len(buffer) >= 4:
            size = int.from_bytes(buffer[:4], "big")
            if size > self.max_bytes:
                raise FrameTooLarge(f"frame of {size} bytes exceeds the limit of {self.max_bytes}")
            if len(buffer) < 4 + size:
                break
            frames.append(bytes(buffer[4 : 4 + size]))
            del buffer[: 4 + size]
        return frames

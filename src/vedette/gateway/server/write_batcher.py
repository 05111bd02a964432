"""Frames of a batch, gathered by socket: whoever gets many of them is written to once.

A write is a third of what it costs to tell somebody something, and it gives the interpreter's lock away, which the
engine's thread then keeps for a while. A socket is written to before the batch is over when `MOST_HELD_BYTES` wait for
it, and before it is closed. What is held is in no outbox yet: marks and limits are those of the write.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["MOST_HELD_BYTES", "WriteBatcher"]

MOST_HELD_BYTES = 65_536


class BatchedWriter(Protocol):
    """Somebody whose frames can be held back."""

    def write_held(self, framed: bytes) -> None:
        """Must not raise: others come after it."""


class _Held:
    __slots__ = ("frames", "size")

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.size = 0


class WriteBatcher:
    """`with` it on, senders `hold` their frames instead of writing them; at the end everything is written."""

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
            sender.write_held(b"".join(each.frames))

    def add(self, sender: BatchedWriter, framed: bytes) -> None:
        held = self._held.get(sender)
        if held is None:
            held = self._held[sender] = _Held()
        held.frames.append(framed)
        held.size += len(framed)
        if held.size >= MOST_HELD_BYTES:
            self.flush(sender)

    def flush(self, sender: BatchedWriter) -> None:
        """Write now what is held for it."""
        held = self._held.pop(sender, None)
        if held is not None:
            sender.write_held(b"".join(held.frames))

"""A hash that is equal in every process, on every machine and in every release. Partitions depend on it."""

from __future__ import annotations

from hashlib import blake2b

__all__ = ["text_hash"]


def text_hash(text: str) -> int:
    """A 64-bit hash of a text."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")

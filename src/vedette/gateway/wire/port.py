"""A gateway as the broker sees it: in process, or a worker behind a Unix socket."""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["CONGESTED_BYTES", "Port"]

CONGESTED_BYTES = 33_554_432
"""Unsent bytes above which a gateway counts as congested."""


class Port(Protocol):
    """One gateway. `send` is called on the engine thread and does not block."""

    def send(self, records: list[Any]) -> None: ...

    @property
    def congested(self) -> bool:
        """True if many bytes are unsent. Large replies then wait; other records are still sent."""
        ...

    def __hash__(self) -> int: ...

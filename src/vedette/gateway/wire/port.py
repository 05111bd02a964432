"""Where a gateway is, seen from the broker: in this process, or at the other end of a socket."""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["CONGESTED_BYTES", "Port"]

CONGESTED_BYTES = 33_554_432
"""What may be on its way to a gateway before large answers wait."""


class Port(Protocol):
    """One gateway. `say` may be called from the engine's thread; it hands over and returns."""

    def send(self, records: list[Any]) -> None: ...

    @property
    def congested(self) -> bool:
        """Whether more is on its way than the gateway takes: large answers wait, all else is said nevertheless."""
        ...

    def __hash__(self) -> int: ...

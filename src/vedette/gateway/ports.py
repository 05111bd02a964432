"""Where a gateway is, seen from the broker: in this process, or at the other end of a socket."""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["Port"]


class Port(Protocol):
    """One gateway. `say` may be called from the engine's thread; it hands over and returns."""

    def say(self, records: list[Any]) -> None: ...

    def __hash__(self) -> int: ...

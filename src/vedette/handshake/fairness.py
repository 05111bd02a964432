"""Whose turn it is: ten turns high priorities first, three turns low ones, so that none starves (surface.md)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["HIGH_FIRST_TURNS", "LOW_FIRST_TURNS", "PriorityRotation"]

HIGH_FIRST_TURNS = 10
LOW_FIRST_TURNS = 3


@dataclass(frozen=True, slots=True)
class PriorityRotation:
    """Counts turns; the low ones are spread among the high ones."""

    turn: int = 0

    def low_first(self) -> bool:
        """Whether this turn serves low priorities first."""
        cycle = HIGH_FIRST_TURNS + LOW_FIRST_TURNS
        position = self.turn % cycle
        return (position + 1) * LOW_FIRST_TURNS // cycle > position * LOW_FIRST_TURNS // cycle

    def next(self) -> PriorityRotation:
        return PriorityRotation(self.turn + 1)

"""What the stages of one pipeline need besides the rows: places and rules, the same for every task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["PipelineContext"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineContext:
    """Picklable: it travels to the executors with every task."""

    journal: str
    """The address of the journal (vedette.sources.journal.seam.open_journal)."""
    registry: str
    """The address of the registry: gateways and their leases are looked up there."""
    index: Path
    """The folder of the index files; every executor must see it."""
    secret: str = ""
    """What a gateway wants to hear before it takes deliveries."""
    index_bytes: int = 1 << 30
    """How much of the index a worker keeps mapped."""

"""What the stages of one pipeline need besides the rows: places and rules, the same for every task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["PipelineConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineConfig:
    """Picklable: it travels to the executors with every task."""

    journal_url: str
    """The address of the journal (vedette.sources.journal.seam.open_journal)."""
    registry_url: str
    """The address of the registry: gateways and their leases are looked up there."""
    index_folder: Path
    """The folder of the index files; every executor must see it."""
    ingest_secret: str = ""
    """What a gateway wants to hear before it takes deliveries."""
    max_mapped_index_bytes: int = 1 << 30
    """How much of the index a worker keeps mapped."""

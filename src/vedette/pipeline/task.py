"""Configuration of the stages: addresses and limits, the same for every task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["PipelineConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineConfig:
    """Picklable: sent to the executors with every task."""

    journal_url: str
    """Address of the journal (vedette.sources.journal.seam.open_journal)."""
    registry_url: str
    """Address of the registry of gateways and their leases."""
    index_folder: Path
    """Folder of the index files; every executor must see it."""
    ingest_secret: str = ""
    """Secret that a gateway requires before it accepts deliveries."""
    max_mapped_index_bytes: int = 1 << 30
    """Maximum bytes of the index that a worker keeps mapped."""

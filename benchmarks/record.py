"""A run as one record: what the JSON file holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.case import Outcome
from benchmarks.machine import Machine

__all__ = ["Run", "read_run", "write_run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    machine: Machine
    scale: str
    """full or quick."""
    complete: bool
    """Whether all cases were run."""
    seconds: float
    load_after: float
    """As `Machine.load_before`; the run's own single thread counts for one."""
    revision_after: str
    """Other than `Machine.revision` when somebody changed the source meanwhile: then no number is of one version."""
    outcomes: list[Outcome]


def write_run(run: Run, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(run)) + b"\n")


def read_run(path: Path) -> Run:
    return msgspec.json.decode(path.read_bytes(), type=Run)

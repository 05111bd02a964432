"""Folders of the repository that tests read."""

from __future__ import annotations

from pathlib import Path

__all__ = ["DATA", "DOCS", "ROOT", "STORIES"]

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DATA = ROOT / "tests" / "data"
STORIES = ROOT / "tests" / "stories"

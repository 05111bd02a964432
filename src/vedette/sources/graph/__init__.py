"""Vedette's own graph as a source of changes."""

from __future__ import annotations

__all__: list[str] = []

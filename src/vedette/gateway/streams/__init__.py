"""Streams that equal subscribers share, with their replay windows."""

from __future__ import annotations

__all__: list[str] = []

"""Streams over external collections, fed by the pipeline."""

from __future__ import annotations

__all__: list[str] = []

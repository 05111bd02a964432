"""Evaluation of one commit: from changed elements to deltas per watch."""

from __future__ import annotations

__all__: list[str] = []

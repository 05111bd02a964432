"""The commit path: the engine lock, the encoding of commits, and their history."""

from __future__ import annotations

__all__: list[str] = []

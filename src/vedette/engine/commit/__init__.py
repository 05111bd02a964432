"""The commit path: the engine lock, journal entries, commit history."""

from __future__ import annotations

__all__: list[str] = []

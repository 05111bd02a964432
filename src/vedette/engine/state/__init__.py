"""The committed graph, its schema, and the checks of one schema version."""

from __future__ import annotations

__all__: list[str] = []

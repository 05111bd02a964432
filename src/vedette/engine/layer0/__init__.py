"""Layer 0 (the system types): watches, sessions and the ontology as graph elements."""

from __future__ import annotations

__all__: list[str] = []

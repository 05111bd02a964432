"""The demo of `vedette serve --demo`: its ontology, data and sample files."""

from __future__ import annotations

__all__: list[str] = []

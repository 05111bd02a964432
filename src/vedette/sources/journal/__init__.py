"""The journal between sources and the pipeline."""

from __future__ import annotations

__all__: list[str] = []

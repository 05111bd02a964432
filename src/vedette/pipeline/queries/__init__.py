"""One module per Spark query."""

from __future__ import annotations

__all__: list[str] = []

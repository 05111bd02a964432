"""What operators and functions do with values. No schema, no graph."""

from __future__ import annotations

__all__: list[str] = []

"""The operators and functions of the language over plain values. No schema, no graph."""

from __future__ import annotations

__all__: list[str] = []

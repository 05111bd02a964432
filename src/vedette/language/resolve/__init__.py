"""Syntax trees resolved against a schema."""

from __future__ import annotations

__all__: list[str] = []

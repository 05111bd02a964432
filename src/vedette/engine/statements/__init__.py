"""Execution of statements, one module per group of statements."""

from __future__ import annotations

__all__: list[str] = []

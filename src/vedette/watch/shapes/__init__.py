"""Compilation of WATCH statements into shared shapes."""

from __future__ import annotations

__all__: list[str] = []

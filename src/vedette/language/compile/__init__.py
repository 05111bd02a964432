"""Plans and resolved expressions, compiled into Python closures."""

from __future__ import annotations

__all__: list[str] = []

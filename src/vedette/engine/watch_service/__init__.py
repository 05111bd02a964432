"""Watches of a database: creation, management, evaluation at commit, catch-up."""

from __future__ import annotations

__all__: list[str] = []

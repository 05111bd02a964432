"""Folder watches: changes become tasks, tasks become searchable text."""

from __future__ import annotations

__all__: list[str] = []

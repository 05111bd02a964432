"""Plan the search for a pattern: the order of its parts, and the index that each step uses."""

from __future__ import annotations

__all__: list[str] = []

"""Client requests, executed on the engine thread."""

from __future__ import annotations

__all__: list[str] = []

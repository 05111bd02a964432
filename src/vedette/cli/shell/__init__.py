"""`vedette shell`: interactive at a terminal, or reading a pipe."""

from __future__ import annotations

__all__: list[str] = []

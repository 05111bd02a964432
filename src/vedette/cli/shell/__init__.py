"""`vedette shell`: the conversation itself, and the two ways to hold it, at a terminal and through a pipe."""

from __future__ import annotations

__all__: list[str] = []

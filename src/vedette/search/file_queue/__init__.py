"""The queue of file tasks: a consume-mode watch over `FileTask` nodes."""

from __future__ import annotations

__all__: list[str] = []

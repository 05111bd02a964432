"""Message formats between clients, server and broker. No I/O."""

from __future__ import annotations

__all__: list[str] = []

"""Sockets and connections, on the event loop."""

from __future__ import annotations

__all__: list[str] = []

"""Wiring of every long-running process, and the supervisor of `vedette serve`."""

from __future__ import annotations

__all__: list[str] = []

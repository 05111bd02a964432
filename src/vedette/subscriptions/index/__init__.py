"""The subscription index: memory-mapped segments, built by the compactor and read by executors."""

from __future__ import annotations

__all__: list[str] = []

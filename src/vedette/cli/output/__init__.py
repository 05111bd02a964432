"""Output of the command lines: tables for people, JSON lines for programs."""

from __future__ import annotations

__all__: list[str] = []

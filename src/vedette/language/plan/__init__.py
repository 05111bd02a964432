"""The order in which the parts of a pattern are searched."""

from __future__ import annotations

__all__: list[str] = []

"""The schema: declarations resolved into types, attribute layouts, constraints, rules and policies."""

from __future__ import annotations

__all__: list[str] = []

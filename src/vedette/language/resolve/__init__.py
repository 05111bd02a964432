"""Resolve syntax trees against a schema: names become registers and indexes, every expression gets a type."""

from __future__ import annotations

__all__: list[str] = []

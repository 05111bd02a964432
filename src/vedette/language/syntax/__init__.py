"""The syntax tree that the parsers build. Nodes are frozen and carry source spans."""

from __future__ import annotations

__all__: list[str] = []

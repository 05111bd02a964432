"""The syntax tree. The parser, CEL and filter lists build it; nodes are frozen and carry source spans."""

from __future__ import annotations

__all__: list[str] = []

"""Evaluation of a commit for watches: one module per update strategy, and the effects that it produces."""

from __future__ import annotations

__all__: list[str] = []

"""Filters over documents: CEL text and JSON filter lists, compiled into one evaluator."""

from __future__ import annotations

__all__: list[str] = []

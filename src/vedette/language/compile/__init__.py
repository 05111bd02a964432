"""Compile plans and resolved expressions into Python closures, and find the matches that changes affect."""

from __future__ import annotations

__all__: list[str] = []

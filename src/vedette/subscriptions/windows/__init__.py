"""Subscriptions with windows: their state, its encoding, and which ones an index version has."""

from __future__ import annotations

__all__: list[str] = []

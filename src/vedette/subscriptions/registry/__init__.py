"""The registry: which gateway has which subscriptions. Any process may open it."""

from __future__ import annotations

__all__: list[str] = []

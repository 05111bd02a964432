"""State that sessions, statements and services share."""

from __future__ import annotations

__all__: list[str] = []

"""Sessions and the watch handles that they return, blocking and asynchronous."""

from __future__ import annotations

__all__: list[str] = []

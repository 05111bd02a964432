"""Monitor a running pipeline: lag policy, index health, status. No Spark."""

from __future__ import annotations

__all__: list[str] = []

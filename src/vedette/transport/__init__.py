"""The protocol between pipeline and gateways, without Spark."""

from __future__ import annotations

__all__: list[str] = []

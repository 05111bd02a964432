"""Frames and delivery between pipeline and gateways: message formats, receiver, causal order. Needs no Spark."""

from __future__ import annotations

__all__: list[str] = []

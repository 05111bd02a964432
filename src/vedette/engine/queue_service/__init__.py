"""Work queues: consume-mode watches, deliveries, acknowledgements, dead letters."""

from __future__ import annotations

__all__: list[str] = []

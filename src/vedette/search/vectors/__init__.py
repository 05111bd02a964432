"""Vector stores: the interface (`store`), Qdrant (`qdrant`, `qdrant_local`), and opening in the background."""

from __future__ import annotations

__all__: list[str] = []

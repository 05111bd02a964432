"""Streams that equal subscribers share, with their replay windows. Engine thread only.

A `Tenant` is one database: its streams, its `EventLog` (sequence numbers, replay window, resume tokens), and the
sessions of shared watches. A `Stream` numbers, encodes and retains each event once. `SubscriptionTable` knows which
client is subscribed to which stream. `StreamPump` takes events from watches that are ready, and `SendQueue` holds
records until the commits they depend on are durable.
"""

from __future__ import annotations

__all__: list[str] = []

"""The graph: elements, indexes, overlays, transactions, integrity checks, constraints and rules. No I/O.

Element versions are immutable. The committed state is one `Graph`; transactions and snapshots are overlays on it.
Reading order: `graph`, `overlay`, `transaction`, `actions`, `integrity`, `rules`.
"""

__all__: list[str] = []

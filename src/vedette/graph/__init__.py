"""The graph: elements, indexes, views, transactions, constraints and rules. No I/O."""

__all__: list[str] = []

"""Find the subscriptions of a change, among millions: shapes, a memory-mapped index, the registry."""

__all__: list[str] = []

"""MongoDB collections, by change streams."""

__all__: list[str] = []

"""MongoDB collections, through change streams."""

__all__: list[str] = []

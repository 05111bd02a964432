"""The engine: homes, databases, sessions and the commit sequence."""

__all__: list[str] = []

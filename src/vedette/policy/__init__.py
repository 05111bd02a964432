"""Policies: rules ▸ decisions ▸ what an actor may see and do."""

__all__: list[str] = []

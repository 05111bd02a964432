"""Durable storage of databases, and group commit. Reading order: `seam`, `catalog`, `group_commit`, then `sqlite/`."""

__all__: list[str] = []

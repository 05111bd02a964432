"""Where databases are kept, and how commits become durable. Begin with `seam`, `home` and `group_commit`."""

__all__: list[str] = []

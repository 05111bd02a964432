"""HTTP API: health, metrics, statements, server-sent events, and the web console."""

__all__: list[str] = []

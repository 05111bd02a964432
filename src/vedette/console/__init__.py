"""The HTTP side of a server: health, metrics, statements, server-sent events, and the browser's client."""

__all__: list[str] = []

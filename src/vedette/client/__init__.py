"""Python clients. They offer the methods of a session over the network, and reconnect and resume automatically."""

__all__: list[str] = []

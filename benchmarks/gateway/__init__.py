"""The gateway under load: many connections, fan-out, latency, everybody coming back at once."""

__all__: list[str] = []

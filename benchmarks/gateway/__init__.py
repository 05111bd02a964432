"""The gateway under load: many connections, fan-out, latency, reconnect storm."""

__all__: list[str] = []

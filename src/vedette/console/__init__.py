"""HTTP API: health, metrics, statements, server-sent events, and the web console.

A request for data becomes a connection of the gateway in this process (`in_process`), so the same protocol, limits and
policies apply as over a WebSocket. `static/` holds the console's page and the browser client.
"""

__all__: list[str] = []

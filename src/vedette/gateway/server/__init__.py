"""Sockets and connections, on the event loop.

`listener` accepts sockets, `websocket` reads and writes the frames of one socket, and `connection` is the protocol of
one client, without I/O. `router` passes requests of connections to the broker and records of the broker to connections.
`subscription` decides whether an event is sent now, held, or replayed later. Nothing here imports the broker half, so
this package can run in a worker process.
"""

from __future__ import annotations

__all__: list[str] = []

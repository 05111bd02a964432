"""Serves databases to clients over WebSocket, server-sent events and HTTP.

Theory of operation. The server half (`server/`) runs on an event loop and holds the sockets. It may be several worker
processes and keeps no durable state. The broker half (`broker/`, `streams/`, `collections/`) runs on the one engine
thread. It executes requests in batches, makes each batch durable with one flush, and only then sends replies and
events. The halves exchange the records of `wire/broker_link.py` through a `Port`, in process or over a Unix socket.

All subscribers with equal request and rights share one stream, which numbers, encodes and retains each event once. A
client that reconnects presents a signed resume token. It gets the events after that position from the replay window, or
resync-required. External collections (`shop::orders`) are matched by the pipeline, which delivers matched changes over
the ingest link; from there on they are streams like any other.
"""

__all__: list[str] = []

"""Streams over external collections, which the pipeline matches.

`queries` parses a subscription, `views` applies policies, `subscribe` registers it and answers its subscribers, and
`publish` turns delivered changes into events of a `CollectionStream`. `broker` connects these parts and ends or resyncs
streams that cannot continue. All of them run on the engine thread and do no I/O. `registry_thread` reads and writes the
journal and the registry on a thread of its own; `ingest_server` receives deliveries on the event loop.
"""

from __future__ import annotations

__all__: list[str] = []

"""Client requests, executed on the engine thread.

`EngineThread` collects requests and events of other threads and passes them to `Broker` in batches. `Broker` opens and
closes connections and dispatches everything else to `RequestDispatcher`, which uses `StatementExecutor` (statements),
`GraphSubscriber` (watches and filters over the graph), `StreamResumer` (resumes and replays) and the collection broker.
`ports` carries records to the gateways. `restore` and `window_file` keep replay windows across a restart.
"""

from __future__ import annotations

__all__: list[str] = []

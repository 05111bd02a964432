"""Executes statements on an in-memory graph and makes every commit durable before its results are visible.

A session parses a statement once per statement template, compiles it once per constant types, and runs it while holding
the database's lock (`commit.lock`). A write collects its changes in a transaction, an overlay over the graph.
Committing checks rules, conflicts, cardinalities and constraints (`state.graph_state`), applies the changes and
appends the commit to the log. Then watches (`watch_service`) and queues (`queue_service`) evaluate the commit;
their events and deliveries are released when the commit is on disk.

Reading order: `data_directory`, `database`, `commit.lock`, `session.session`, `statements.execution`,
`state.graph_state`, `watch_service.service`, `queue_service.service`.
"""

__all__: list[str] = []

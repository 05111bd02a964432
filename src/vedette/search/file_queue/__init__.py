"""The queue of file tasks.

`tasks` has the records and the interface. `engine_queue` implements it by a consume-mode WATCH over `FileTask` nodes,
with `task_nodes` (statements), `claims` (open claims) and `task_records` (status of each task). `task_table` is the
table behind the SQL view `ingestion_queue`. `client` serves processes that do not own the queue.
"""

from __future__ import annotations

__all__: list[str] = []

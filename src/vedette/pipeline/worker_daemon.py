"""What Spark's Python workers are forked from (`spark.python.daemon.module`): ours, so that a fork has all it needs.

A worker that starts cold imports numpy, pyarrow and the matcher first, and after every task pyspark collects garbage
over all of it. Here they are imported once, before the first fork, and frozen: collections pass them by. Within a task
they come seldom: its objects live as long as its rows, and hardly any refer to each other. After a task it is what the
task left that is looked through, and only now and then everything that a worker keeps: files of the index, filters.
"""

from __future__ import annotations

import gc
import importlib

__all__ = ["AfterTasks", "main"]

_PRELOADED = (
    "vedette.pipeline.queries.delivering_source",
    "vedette.sources.journal.sqlite_journal",
    "pyspark.sql.datasource",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.worker",
)
_YOUNG_OBJECTS = 50_000
"""Python's own is 700."""
_YOUNG, _OLDEST = 1, 2
"""Generations: what came since the last collection, and everything that is not frozen."""
_SELDOM = 64
"""After so many tasks everything is looked through: that takes as long as a small task does."""


class AfterTasks:
    """What pyspark's daemon has for `gc`: it calls `collect` after each task."""

    def __init__(self) -> None:
        self._tasks = 0

    def collect(self) -> None:
        self._tasks += 1
        gc.collect(_OLDEST if self._tasks % _SELDOM == 0 else _YOUNG)


def main() -> None:
    from pyspark import daemon

    for name in _PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS)
    daemon.gc = AfterTasks()  # type: ignore[assignment,attr-defined]
    daemon.manager()


if __name__ == "__main__":
    main()

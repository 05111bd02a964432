"""The process from which Spark forks its Python workers (`spark.python.daemon.module`), with all modules preloaded.

A cold worker imports numpy, pyarrow and the matcher first, and pyspark runs a full garbage collection after every
task. Here the modules are imported once before the first fork and frozen, so that collections skip them. Collections
within a task are rare: its objects live as long as its rows and hardly refer to each other. After a task only the
young objects are collected, and from time to time everything a worker keeps: index files, filters.
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
"""Python's default is 700."""
_YOUNG, _OLDEST = 1, 2
"""Generations: objects since the last collection, and everything that is not frozen."""
_SELDOM = 64
"""Tasks between full collections, because one takes as long as a small task."""


class AfterTasks:
    """Replaces `gc` in pyspark's daemon, which calls `collect` after each task."""

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

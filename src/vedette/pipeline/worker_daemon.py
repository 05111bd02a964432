"""What Spark's Python workers are forked from (`spark.python.daemon.module`): ours, so that a fork has all it needs.

A worker that starts cold imports numpy, pyarrow and the matcher first, and after every task pyspark collects garbage
over all of it. Here they are imported once, before the first fork, and frozen: collections pass them by. Within a task
they come seldom: its objects live as long as its rows, and hardly any refer to each other.
"""

from __future__ import annotations

import gc
import importlib

__all__ = ["main"]

_PRELOADED = (
    "vedette.pipeline.telling",
    "vedette.sources.sqlite_journal",
    "pyspark.sql.datasource",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.worker",
)
_YOUNG_OBJECTS = 50_000
"""Python's own is 700."""


def main() -> None:
    from pyspark.daemon import manager

    for name in _PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS)
    manager()


if __name__ == "__main__":
    main()

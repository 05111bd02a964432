"""What Spark's Python workers are forked from (`spark.python.daemon.module`): ours, so that a fork has all it needs.

A worker that starts cold imports numpy, pyarrow and the matcher first, and after every task pyspark collects garbage
over all of it. Here they are imported once, before the first fork, and frozen: collections pass them by.
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


def main() -> None:
    from pyspark.daemon import manager

    for name in _PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()

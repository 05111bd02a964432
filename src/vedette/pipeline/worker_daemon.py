"""The process from which Spark forks its Python workers (`spark.python.daemon.module`), with all modules preloaded.

A cold worker would first import numpy, pyarrow and the matcher. Here they are imported once, before the first fork, and
frozen: pyspark runs a full garbage collection after every task, and a collection skips frozen objects. Workers freeze
later what they keep between tasks (`worker_cache.freeze_kept_objects`).
"""

from __future__ import annotations

import gc
import importlib

__all__ = ["main"]

_PRELOADED = (
    "vedette.pipeline.queries.changes",
    "vedette.sources.journal.sql_journal",
    "vedette.storage.sqlite.database",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.worker",
)
_GC_THRESHOLD = 50_000
"""New objects between two collections within a task; Python's default is 700. The objects of a task live as long as
its rows and rarely refer to each other, so collections find little."""


def main() -> None:
    from pyspark import daemon

    for name in _PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
    daemon.manager()


if __name__ == "__main__":
    main()

"""When the garbage of Spark's Python workers is collected."""

from __future__ import annotations

import gc
from weakref import ref

from vedette.pipeline.worker_daemon import AfterTasks


class Node:
    """Refers to itself: only a collection frees it."""

    def __init__(self) -> None:
        self.itself = self


def test_what_a_task_left_is_gone_after_it() -> None:
    collections = AfterTasks()
    collections.collect()
    left = ref(Node())
    assert left() is not None
    collections.collect()
    assert left() is None


def test_what_was_kept_and_let_go_of_is_gone_in_the_end() -> None:
    """Like a file of the index that another took the place of."""
    collections, kept = AfterTasks(), Node()
    gc.collect()  # it is old now
    gone = ref(kept)
    del kept
    tasks = 0
    while gone() is not None:
        collections.collect()
        tasks += 1
    assert 1 < tasks <= 64

"""Garbage collection as a policy: a graph of a million elements must not be walked in the middle of a commit.

What is loaded is frozen, automatic full collections are off (Python's young generations go on as ever: nodes, watches
and events hold no cycles), and a full collection is left to moments when nobody waits. The policy is the process's, so
it is engaged once and released with the last home that asked for it.
"""

from __future__ import annotations

import gc
from threading import Lock

__all__ = ["CollectionPolicy", "collection_policy"]

_NEVER = 1_000_000_000


class CollectionPolicy:
    """Counts who asked for it; the first engages, the last releases."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._thresholds = gc.get_threshold()

    def engage(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._thresholds = gc.get_threshold()
                first, second, _ = self._thresholds
                gc.set_threshold(first, second, _NEVER)
            gc.collect(1)
            gc.freeze()

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                gc.set_threshold(*self._thresholds)
                gc.unfreeze()

    def rest(self) -> None:
        """A quiet moment: collect what nobody needs, and freeze what has stayed."""
        with self._lock:
            gc.unfreeze()
            gc.collect()
            gc.freeze()


collection_policy = CollectionPolicy()

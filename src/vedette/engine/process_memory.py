"""Garbage collection policy: a graph of a million elements must not be traversed during a commit.

Loaded objects are frozen, automatic full collections are off, and a full collection runs when the process is idle.
Young collections run less often than by default: nodes, watches and events contain no cycles, and most objects of a
commit or delivery are freed before. The policy applies to the process: it is enabled by the first open data
directory that wants it and disabled by the last.
"""

from __future__ import annotations

import gc
from threading import Event, Lock, Thread

from vedette.engine.huge_pages import large_pages

__all__ = ["GcPolicy", "collection_policy"]

_NEVER = 1_000_000_000
_DEFAULT_GC_THRESHOLD = 700
_GC_THRESHOLD = 5_000
"""New objects between young collections, unless the application set its own threshold."""
_LOOK_SECONDS = 2.0
_LOOKS = 5
"""Idleness is checked every this many runs; huge pages are collapsed in each."""
_QUIET_COLLECTIONS = 2
"""A process with at most this many young collections between two checks is idle."""


class GcPolicy:
    """A reference count: the first user enables the policy, the last disables it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._thresholds = gc.get_threshold()
        self._released = Event()

    def acquire(self) -> None:
        """Freeze existing objects and leave full collections to idle moments."""
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._thresholds = gc.get_threshold()
                first, second, _ = self._thresholds
                gc.set_threshold(_GC_THRESHOLD if first == _DEFAULT_GC_THRESHOLD else first, second, _NEVER)
                self._released = Event()
                Thread(target=self._run, args=(self._released,), name="vedette-collect", daemon=True).start()
            gc.freeze()

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._released.set()
                gc.set_threshold(*self._thresholds)
                gc.unfreeze()

    def collect(self) -> None:
        """Run a full collection and freeze what remains."""
        with self._lock:
            if self._users:
                gc.unfreeze()
                gc.collect()
                gc.freeze()

    def _run(self, released: Event) -> None:
        """Collect once whenever the process becomes idle after it was busy."""
        seen = _young_collections()
        busy, looks = False, 0
        while not released.wait(_LOOK_SECONDS):
            looks += 1
            large_pages.look(released.wait)
            if looks % _LOOKS:
                continue
            now = _young_collections()
            if now - seen > _QUIET_COLLECTIONS:
                busy = True
            elif busy:
                self.collect()
                busy = False
            seen = _young_collections()


def _young_collections() -> int:
    return int(gc.get_stats()[0]["collections"])


collection_policy = GcPolicy()

"""Garbage collection as a policy: a graph of a million elements must not be walked in the middle of a commit.

What is loaded is frozen, automatic full collections are off, and a full collection waits for a quiet moment of the
process. Young collections go on, but less often than Python would have them: nodes, watches and events hold no cycles,
and most of what a commit or a batch of deliveries makes is gone before they come. The policy is the process's, so it is
engaged once and released with the last home that asked for it.
"""

from __future__ import annotations

import gc
from threading import Event, Lock, Thread

from vedette.engine.huge_pages import large_pages

__all__ = ["GcPolicy", "collection_policy"]

_NEVER = 1_000_000_000
_DEFAULT_GC_THRESHOLD = 700
_GC_THRESHOLD = 5_000
"""New objects between young collections, unless somebody chose a number: a few batches of deliveries."""
_LOOK_SECONDS = 2.0
_LOOKS = 5
"""Every so many looks it is seen whether the process has become quiet; large pages are made at each."""
_QUIET_COLLECTIONS = 2
"""A process that had at most this many young collections between two looks is quiet."""


class GcPolicy:
    """Counts who asked for it; the first engages, the last releases."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._thresholds = gc.get_threshold()
        self._released = Event()

    def acquire(self) -> None:
        """Freeze what is there, and leave full collections to quiet moments."""
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
        """A full collection, and freeze what has stayed."""
        with self._lock:
            if self._users:
                gc.unfreeze()
                gc.collect()
                gc.freeze()

    def _run(self, released: Event) -> None:
        """Collect once whenever the process has become quiet after it was busy."""
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

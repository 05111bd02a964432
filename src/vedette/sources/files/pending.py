"""Paths that were heard of and wait to be looked at: debounced, coalesced, bounded, and never dropped.

The first word of a path is followed up soon, after a moment in which a writer may finish. If more is heard of it within
the debounce it is *busy*: it is looked at again when it was quiet for the debounce, or after ten debounces, so that a
file that is written all the time is looked at all the same. More paths than the bound collapse into one mark: rescan
everything.
"""

from __future__ import annotations

from itertools import islice

__all__ = ["MOST_PATHS", "PendingPaths"]

MOST_PATHS = 50_000
SETTLE_SECONDS = 0.04
"""How long a path that was quiet before must be quiet again; less than a tick of the watcher, so that it is one."""
PATIENCE = 10.0
"""Debounces that a busy path waits at most."""


class PendingPaths:
    """On the monotonic scale, in seconds. Relative paths."""

    def __init__(self, debounce_seconds: float, most_paths: int = MOST_PATHS) -> None:
        self._debounce, self._most = debounce_seconds, most_paths
        self._times: dict[str, tuple[float, float]] = {}
        """Path ▸ first heard, last heard."""
        self._looked: dict[str, float] = {}
        """Path ▸ when it was last handed out, of those that are or may become busy; oldest first."""
        self._rescan: tuple[float, float] | None = None

    def __len__(self) -> int:
        return len(self._times)

    @property
    def rescan_wanted(self) -> bool:
        return self._rescan is not None

    def note(self, path: str, now: float) -> None:
        """Something happened there."""
        if path not in self._times and now - self._looked.get(path, now) >= self._debounce:
            del self._looked[path]  # it was quiet before
        first, _ = self._times.get(path, (now, now))
        self._times[path] = (first, now)
        if len(self._times) > self._most:
            self._times.clear()
            self.want_rescan(now)

    def want_rescan(self, now: float) -> None:
        """The whole folder is to be compared with what is known of it, once it is quiet."""
        first, _ = self._rescan or (now, now)
        self._rescan = (first, now)

    def due(self, now: float, stretch: float = 1.0, most: int = MOST_PATHS) -> list[str]:
        """Takes out the paths whose time has come, the first of them. `stretch`: of all waits, under load."""
        debounce = self._debounce * stretch
        settle = min(SETTLE_SECONDS, self._debounce) * stretch
        self._forget_quiet(now - debounce)
        due = (
            path
            for path, times in self._times.items()
            if (
                _is_due(times, now, debounce, PATIENCE * debounce)
                if path in self._looked
                else _is_due(times, now, settle, debounce)
            )
        )
        ready = list(islice(due, most))
        for path in ready:
            del self._times[path]
            self._looked.pop(path, None)
            self._looked[path] = now
        return ready

    def take_rescan(self, now: float, stretch: float = 1.0) -> bool:
        """Whether to rescan now. All paths go with it: a scan looks at every one of them."""
        debounce = self._debounce * stretch
        if self._rescan is None or not _is_due(self._rescan, now, debounce, PATIENCE * debounce):
            return False
        self._rescan = None
        self._times.clear()
        return True

    def _forget_quiet(self, before: float) -> None:
        """Those that were handed out before and not heard of since."""
        for path, moment in list(self._looked.items()):
            if moment > before and len(self._looked) <= self._most:
                return
            if path not in self._times or len(self._looked) > self._most:
                del self._looked[path]


def _is_due(times: tuple[float, float], now: float, quiet: float, patience: float) -> bool:
    first, last = times
    return now - last >= quiet or now - first >= patience

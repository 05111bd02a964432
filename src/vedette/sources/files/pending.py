"""Paths that were heard of and wait to be looked at: debounced, coalesced, bounded, and never dropped.

A path is due when nothing was heard of it for the debounce, or when it has waited for ten times as long: a file that is
written all the time is looked at all the same. More paths than the bound collapse into one mark: rescan everything.
"""

from __future__ import annotations

__all__ = ["MOST_PATHS", "PendingPaths"]

MOST_PATHS = 50_000
PATIENCE = 10.0
"""Debounces that a path waits at most."""


class PendingPaths:
    """On the monotonic scale, in seconds. Relative paths; "" is the whole folder."""

    def __init__(self, debounce_seconds: float, most_paths: int = MOST_PATHS) -> None:
        self._debounce, self._most = debounce_seconds, most_paths
        self._times: dict[str, tuple[float, float]] = {}
        """Path ▸ first heard, last heard."""
        self._rescan: tuple[float, float] | None = None

    def __len__(self) -> int:
        return len(self._times)

    @property
    def rescan_wanted(self) -> bool:
        return self._rescan is not None

    def note(self, path: str, now: float) -> None:
        """Something happened there."""
        first, _ = self._times.get(path, (now, now))
        self._times[path] = (first, now)
        if len(self._times) > self._most:
            self._times.clear()
            self.want_rescan(now)

    def want_rescan(self, now: float) -> None:
        """The whole folder is to be compared with what is known of it, once it is quiet."""
        first, _ = self._rescan or (now, now)
        self._rescan = (first, now)

    def due(self, now: float, stretch: float = 1.0) -> list[str]:
        """Takes out the paths whose time has come. `stretch`: of the debounce, under load."""
        ready = [path for path, times in self._times.items() if self._is_due(times, now, stretch)]
        for path in ready:
            del self._times[path]
        return ready

    def take_rescan(self, now: float, stretch: float = 1.0) -> bool:
        """Whether to rescan now. All paths go with it: a scan looks at every one of them."""
        if self._rescan is None or not self._is_due(self._rescan, now, stretch):
            return False
        self._rescan = None
        self._times.clear()
        return True

    def _is_due(self, times: tuple[float, float], now: float, stretch: float) -> bool:
        first, last = times
        debounce = self._debounce * stretch
        return now - last >= debounce or now - first >= PATIENCE * debounce

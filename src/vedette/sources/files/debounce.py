"""Paths with pending notifications: debounced, coalesced, bounded, and never dropped.

The first notification of a path is handled after a short delay, in which a writer may finish. If more notifications
arrive within the debounce interval, the path is *busy*: it is checked again after one quiet interval, or after ten
intervals at most, so that a file that is written continuously is still checked. If there are more paths than the
limit, they collapse into a rescan and the folders that contained them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

__all__ = ["MOST_PATHS", "DebouncedPaths"]

MOST_PATHS = 50_000
SETTLE_SECONDS = 0.04
"""Quiet time in seconds before a path that was idle is checked. Shorter than one tick of the watcher, so it costs one
tick."""
MAX_DEBOUNCES = 10.0
"""Maximum number of debounce intervals that a busy path waits."""


class DebouncedPaths:
    """The pending paths of one folder. Paths are relative; times are seconds of the monotonic clock."""

    def __init__(self, debounce_seconds: float, most_paths: int = MOST_PATHS) -> None:
        self._debounce, self._max_paths = debounce_seconds, most_paths
        self._times: dict[str, tuple[float, float]] = {}
        """Times of the first and the last notification, by path."""
        self._last_scanned: dict[str, float] = {}
        """Time when a path was last returned, for paths that are or may become busy; oldest first."""
        self._rescan: tuple[float, float] | None = None
        self._notified_folders: set[str] = set()
        """Folders with notifications before the rescan. The rescan checks their files first."""

    def __len__(self) -> int:
        return len(self._times)

    @property
    def rescan_requested(self) -> bool:
        return self._rescan is not None

    def add(self, path: str, now: float) -> None:
        """Record a notification for the path."""
        if path not in self._times and now - self._last_scanned.get(path, now) >= self._debounce:
            del self._last_scanned[path]  # the path was idle
        first, _ = self._times.get(path, (now, now))
        self._times[path] = (first, now)
        if len(self._times) > self._max_paths:
            self.request_rescan(now, self._times)
            self._times.clear()

    def request_rescan(self, now: float, notified: Iterable[str] = ()) -> None:
        """Schedule a rescan for when the folder is quiet, because notifications were lost or exceed the limit.

        The rescan first checks the folders of the paths in `notified`.
        """
        first, _ = self._rescan or (now, now)
        self._rescan = (first, now)
        self._notified_folders.update(map(_folder, notified))
        if len(self._notified_folders) > self._max_paths:
            self._notified_folders.clear()

    def take_due(self, now: float, multiplier: float = 1.0, max_paths: int = MOST_PATHS) -> list[str]:
        """Remove and return the paths that are due, earliest first. `multiplier` multiplies every delay under load."""
        debounce = self._debounce * multiplier
        settle = min(SETTLE_SECONDS, self._debounce) * multiplier
        self._forget_quiet(now - debounce)
        due = (
            path
            for path, times in self._times.items()
            if (
                _is_due(times, now, debounce, MAX_DEBOUNCES * debounce)
                if path in self._last_scanned
                else _is_due(times, now, settle, debounce)
            )
        )
        ready = list(islice(due, max_paths))
        for path in ready:
            del self._times[path]
            self._last_scanned.pop(path, None)
            self._last_scanned[path] = now
        return ready

    def take_rescan(self, now: float, multiplier: float = 1.0) -> set[str] | None:
        """Return the folders that a due rescan checks first, or None. Paths inside them are removed: the rescan
        covers them."""
        debounce = self._debounce * multiplier
        if self._rescan is None or not _is_due(self._rescan, now, debounce, MAX_DEBOUNCES * debounce):
            return None
        notified_folders, self._notified_folders, self._rescan = self._notified_folders, set(), None
        self._times = {
            path: times for path, times in self._times.items() if _folder(path) not in notified_folders
        }
        return notified_folders

    def _forget_quiet(self, before: float) -> None:
        """Remove paths that were returned and have had no notification since."""
        quiet: list[str] = []
        for path, moment in self._last_scanned.items():
            too_many = len(self._last_scanned) - len(quiet) > self._max_paths
            if moment > before and not too_many:
                break
            if path not in self._times or too_many:
                quiet.append(path)
        for path in quiet:
            del self._last_scanned[path]


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _is_due(times: tuple[float, float], now: float, quiet: float, patience: float) -> bool:
    first, last = times
    return now - last >= quiet or now - first >= patience

"""Paths that were heard of and wait to be looked at: debounced, coalesced, bounded, and never dropped.

The first word of a path is followed up soon, after a moment in which a writer may finish. If more is heard of it within
the debounce it is *busy*: it is looked at again when it was quiet for the debounce, or after ten debounces, so that a
file that is written all the time is looked at all the same. More paths than the bound collapse into one mark, a rescan,
and the folders that they were in.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

__all__ = ["MOST_PATHS", "DebouncedPaths"]

MOST_PATHS = 50_000
SETTLE_SECONDS = 0.04
"""How long a path that was quiet before must be quiet again; less than a tick of the watcher, so that it is one."""
MAX_DEBOUNCES = 10.0
"""Debounces that a busy path waits at most."""


class DebouncedPaths:
    """On the monotonic scale, in seconds. Relative paths."""

    def __init__(self, debounce_seconds: float, most_paths: int = MOST_PATHS) -> None:
        self._debounce, self._most = debounce_seconds, most_paths
        self._times: dict[str, tuple[float, float]] = {}
        """Path ▸ first heard, last heard."""
        self._last_scanned: dict[str, float] = {}
        """Path ▸ when it was last handed out, of those that are or may become busy; oldest first."""
        self._rescan: tuple[float, float] | None = None
        self._heard: set[str] = set()
        """Folders of which something was heard before the rescan. A rescan finds everything without: only later."""

    def __len__(self) -> int:
        return len(self._times)

    @property
    def rescan_wanted(self) -> bool:
        return self._rescan is not None

    def add(self, path: str, now: float) -> None:
        """Something happened there."""
        if path not in self._times and now - self._last_scanned.get(path, now) >= self._debounce:
            del self._last_scanned[path]  # it was quiet before
        first, _ = self._times.get(path, (now, now))
        self._times[path] = (first, now)
        if len(self._times) > self._most:
            self.request_rescan(now, self._times)
            self._times.clear()

    def request_rescan(self, now: float, heard: Iterable[str] = ()) -> None:
        """Words were lost, or are too many: a rescan is due once it is quiet. `heard`: paths that were told of."""
        first, _ = self._rescan or (now, now)
        self._rescan = (first, now)
        self._heard.update(map(_folder, heard))
        if len(self._heard) > self._most:
            self._heard.clear()

    def take_due(self, now: float, stretch: float = 1.0, most: int = MOST_PATHS) -> list[str]:
        """Takes out the paths whose time has come, the first of them. `stretch`: of all waits, under load."""
        debounce = self._debounce * stretch
        settle = min(SETTLE_SECONDS, self._debounce) * stretch
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
        ready = list(islice(due, most))
        for path in ready:
            del self._times[path]
            self._last_scanned.pop(path, None)
            self._last_scanned[path] = now
        return ready

    def take_rescan(self, now: float, stretch: float = 1.0) -> set[str] | None:
        """The folders to begin with, when a rescan is due now. The paths in them go with it: it looks at every one."""
        debounce = self._debounce * stretch
        if self._rescan is None or not _is_due(self._rescan, now, debounce, MAX_DEBOUNCES * debounce):
            return None
        heard, self._heard, self._rescan = self._heard, set(), None
        self._times = {path: times for path, times in self._times.items() if _folder(path) not in heard}
        return heard

    def _forget_quiet(self, before: float) -> None:
        """Those that were handed out before and not heard of since."""
        quiet: list[str] = []
        for path, moment in self._last_scanned.items():
            too_many = len(self._last_scanned) - len(quiet) > self._most
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

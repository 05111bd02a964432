"""The thread of a watched folder: collects events, waits until the folder is quiet, scans, and reports changes.

    native    the operating system sends events (watchfiles). The whole folder is scanned at start and every
              `rescan_seconds`; after a burst that may have overflowed the kernel's queue, a rescan checks the folders
              that the burst may have missed
    polling   no events: the whole folder is scanned every `poll_seconds`. Used for network file systems and when the
              limit of inotify watches is reached; the listener receives the reason

The kernel's queue can overflow, and watchfiles does not report it (its handler accepts only events with a path). So a
burst of `BURST` paths within one read, including the polls before it, counts as an overflow. Once the folder is
quiet, a rescan compares all files of the folders named in the burst and of the folders whose mtime changed. The
remaining files may have been written in place without an event; they are checked too, a few at a time, after all
reported paths.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from threading import Event, Thread
from typing import Protocol

from vedette.clock import Clock
from vedette.sources.files.debounce import MOST_PATHS, DebouncedPaths
from vedette.sources.files.file_stamp import FileChange
from vedette.sources.files.folder import Folder, ScanOutcome
from vedette.sources.files.fs_events import FileEvents

__all__ = ["FolderListener", "FolderWatcher", "WatcherTiming", "polling_reason"]

log = logging.getLogger(__name__)

BURST = 1_000
PATHS_AFTER_REFUSAL = 500
"""Number of paths scanned together after some were refused; it doubles each time all are accepted."""
MANY_PATHS = 500
"""While at least this many paths are scanned, more events arrive: the next read does not wait."""
SHORT_READ_MS, SETTLE_READ_MS = 1, 40
"""Milliseconds to wait for events after a large scan, and while no pending path is due."""
MOST_UNWRITTEN = 50_000
"""Maximum number of accepted changes that are not written to disk; they are written when idle."""
LEFT_AT_ONCE = 1_000
"""Files skipped by a rescan that are checked together when nothing else is due."""
SCAN_SHARE = 0.05
"""Maximum share of time spent in scans while the listener refuses changes."""
NETWORK_FILE_SYSTEMS = frozenset(
    "9p afs ceph cifs davfs fuse.rclone fuse.sshfs glusterfs lustre nfs nfs4 smb3 smbfs vboxsf".split()
)
"""File systems that do not report changes made by other hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatcherTiming:
    debounce_seconds: float = 2.0
    poll_seconds: float = 10.0
    """Seconds between scans of a polled folder."""
    rescan_seconds: float = 300.0
    """Seconds between scans of a folder with events."""
    retry_seconds: float = 1.0
    """Seconds until refused changes are offered again, and until an unavailable folder is tried again."""
    tick_milliseconds: int = 50
    """Seconds between checks for due work."""


class FolderListener(Protocol):
    """Receives the changes of a watcher. Called from the watcher's thread."""

    def accept(self, changes: Sequence[FileChange]) -> Collection[FileChange]:
        """Return the changes that are now durable, for example queued. The watcher keeps the others and offers them
        again."""
        ...

    def mode_changed(self, mode: str, reason: str) -> None:
        """Called when the mode changes: `native` or `polling`, with the reason."""
        ...

    def availability_changed(self, down: str | None, unreadable: Sequence[tuple[str, str]]) -> None:
        """Called after every scan: why the folder is unavailable or None, and the paths that could not be read."""
        ...

    def scan_finished(self, began_at: datetime) -> None:
        """Called after a scan of the whole folder, when its changes were offered."""
        ...


class FolderWatcher:
    """Watches one folder in a thread, from `start` to `stop`. Any thread may call the public methods."""

    def __init__(
        self,
        folder: Folder,
        listener: FolderListener,
        clock: Clock,
        timing: WatcherTiming,
        *,
        force_polling: str | None = None,
    ) -> None:
        self._folder, self._listener, self._clock, self._timing = folder, listener, clock, timing
        self._force_polling = force_polling
        self._interval_multiplier = 1.0
        self._pending = DebouncedPaths(timing.debounce_seconds)
        self._stopping = Event()
        self._last_scan: float | None = None
        """When the last full scan began; None before the first one."""
        self._last_rescan = 0.0
        self._scan_seconds = 0.0
        """Duration of the last scan."""
        self._left: list[str] = []
        """Files that the last rescan skipped and that are still to be checked."""
        self._max_paths_per_scan = MOST_PATHS
        """Number of paths scanned together. Scanning all pending paths every time would cost more than the work
        itself."""
        self._look_again_at = 0.0
        """No changes are offered before this time, because the listener refused some."""
        self._reading = timing.tick_milliseconds
        """Duration of the next wait."""
        self._burst_paths: set[str] = set()
        """Number of paths of the current read and the polls before it, which together form one burst."""
        self._down = False
        self._identity: tuple[int, int] | None = None
        self._rescan_requested = Event()
        self._thread = Thread(target=self._run, name=f"vedette-folder-{folder.watch_id}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and wait for its end. Changes that were not reported are found at the next start."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def set_interval_multiplier(self, multiplier: float) -> None:
        """Multiply the debounce time and the scan intervals, to reduce the work under load. Takes effect at once."""
        self._interval_multiplier = multiplier

    def request_rescan(self) -> None:
        """Request a full scan at the next opportunity."""
        self._rescan_requested.set()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    # ---- thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._watch_once()
                self._folder.commit(())
            except Exception:
                # Run the watcher until it is stopped. After an unexpected error it logs the reason and starts again
                # with a scan.
                log.exception(
                    "Watching a folder failed; it restarts with a scan",
                    extra={"action": "folder.failed", "watch_id": self._folder.watch_id},
                )
                self._stopping.wait(self._timing.retry_seconds)

    def _watch_once(self) -> None:
        """Watch until the watcher is stopped or the folder must be opened again."""
        self._identity = self._folder.identity()
        if self._identity is None:
            self._reconcile()  # reports that the folder is unavailable
            self._stopping.wait(self._timing.retry_seconds)
            return
        reason = self._force_polling or polling_reason(self._folder.root)
        if reason is None:
            reason = self._watch_native()
        if reason is not None and not self._stopping.is_set():
            self._poll(reason)

    def _watch_native(self) -> str | None:
        """Watch with events. Returns None if stopped or if the root was replaced, or the reason why events are
        unavailable."""
        try:
            file_events = FileEvents(self._folder.root, self._stopping)
        except FileNotFoundError:
            return None  # the root disappeared just now; opened again when it is back
        except (OSError, RuntimeError) as error:  # a system limit was reached
            return str(error)
        with file_events:
            self._listener.mode_changed("native", "the operating system sends events")
            self._rescan_requested.set()  # events are collected from here on; a scan finds earlier changes
            while True:
                reading = self._reading
                try:
                    paths = file_events.read(reading)
                except (OSError, RuntimeError) as error:  # a name that is not valid text
                    return str(error)
                if paths is None:
                    return None
                if self._add_events(paths):
                    return (
                        None  # the root itself: another folder may have replaced it, even with the same inode
                    )
                if reading != SHORT_READ_MS:
                    self._burst_paths.clear()
                resting = not paths and reading >= self._timing.tick_milliseconds
                if not self._step(self._timing.rescan_seconds, resting=resting):
                    return None

    def _poll(self, reason: str) -> None:
        self._listener.mode_changed("polling", reason)
        self._rescan_requested.set()
        while self._step(self._timing.poll_seconds):
            if self._stopping.wait(self._timing.tick_milliseconds / 1000):
                return

    def _add_events(self, paths: Collection[str]) -> bool:
        """Record the events. Return True if one was about the root itself."""
        if not paths:
            return False
        now = self._clock.monotonic()
        relatives = self._folder.relatives(paths)
        for path in relatives:
            if path and self._might_matter(path):
                self._pending.add(path, now)
        self._burst_paths |= relatives
        if len(self._burst_paths) >= BURST or self._pending.rescan_requested:
            self._pending.request_rescan(now, self._burst_paths)
            self._burst_paths.clear()
        return "" in relatives

    def _might_matter(self, path: str) -> bool:
        selection = self._folder.selection
        return selection.includes(path) or selection.descends_into(path)

    def _step(self, scan_seconds: float, *, resting: bool = True) -> bool:
        """Do the work that is due. Returns False if the folder must be opened again."""
        glanced, self._reading = self._reading == SHORT_READ_MS, self._timing.tick_milliseconds
        if self._folder.identity() != self._identity:
            return False
        now, multiplier = self._clock.monotonic(), self._interval_multiplier
        pause = self._timing.retry_seconds if self._down else scan_seconds * multiplier
        due = self._last_scan is None or now - self._last_scan >= pause
        if self._rescan_requested.is_set() or due:
            return self._reconcile()
        notified_folders = self._pending.take_rescan(now, multiplier) if self._may_rescan(now) else None
        if notified_folders is not None:
            return self._scan(lambda: self._folder.rescan(notified_folders))
        if now >= self._look_again_at:
            paths = self._pending.take_due(now, multiplier, self._max_paths_per_scan)
            if len(paths) >= MANY_PATHS:
                self._reading = SHORT_READ_MS
            paths = paths or self._some_left()
            if paths:
                self._report(self._folder.scan_paths(paths))
                return True
        if resting:
            self._folder.commit(())
        elif glanced:
            self._reading = min(SETTLE_READ_MS, self._reading)
        return True

    def _some_left(self) -> list[str]:
        some = self._left[-LEFT_AT_ONCE:]
        del self._left[-LEFT_AT_ONCE:]
        return some

    def _may_rescan(self, now: float) -> bool:
        """True if a full scan may run. While the listener refuses changes, another scan would find the same ones."""
        refused = self._max_paths_per_scan < MOST_PATHS
        return not refused or now - self._last_rescan >= self._scan_seconds / SCAN_SHARE

    def _reconcile(self) -> bool:
        """Compare the whole folder. Returns False if the folder must be opened again."""
        self._rescan_requested.clear()
        began_at, began = self._clock.now(), self._clock.monotonic()
        same = self._scan(self._folder.full_scan)
        self._last_scan = began
        if not self._down:
            self._listener.scan_finished(began_at)
        return same

    def _scan(self, look_at_it: Callable[[], ScanOutcome]) -> bool:
        """Report the result of a scan. Returns False if the folder must be opened again."""
        self._last_rescan = began = self._clock.monotonic()
        look = look_at_it()
        self._scan_seconds = self._clock.monotonic() - began
        self._report(look)
        self._left, self._down = list(look.unchecked), look.unavailable_reason is not None
        return self._folder.identity() == self._identity

    def _report(self, look: ScanOutcome) -> None:
        self._listener.availability_changed(look.unavailable_reason, sorted(look.unreadable.items()))
        now = self._clock.monotonic()
        if look.changes:
            self._offer_changes(look.changes, now)
        for path in look.unstable:
            self._pending.add(path, now)

    def _offer_changes(self, changes: Sequence[FileChange], now: float) -> None:
        """Offer changes to the listener. Refused changes stay pending."""
        self._folder.mark_pending(changes)
        taken = self._listener.accept(changes)
        self._folder.record(taken)
        if self._folder.unwritten > MOST_UNWRITTEN:
            self._folder.commit(())
        if len(taken) == len(changes):
            self._max_paths_per_scan, self._look_again_at = min(2 * self._max_paths_per_scan, MOST_PATHS), 0.0
            return
        self._max_paths_per_scan, self._look_again_at = PATHS_AFTER_REFUSAL, now + self._timing.retry_seconds
        later = now - self._timing.debounce_seconds * self._interval_multiplier + self._timing.retry_seconds
        paths = {change.path for change in taken}
        for change in changes:
            if change.path not in paths:
                self._pending.add(change.path, later)
                if change.old_path is not None:
                    self._pending.add(change.old_path, later)


def polling_reason(root: Path) -> str | None:
    """Return why the operating system sends no events for this folder; None if it does."""
    kind = _file_system(root)
    return (
        f"{root} is on {kind}, where changes by other hosts send no events"
        if kind in NETWORK_FILE_SYSTEMS
        else None
    )


def _file_system(root: Path) -> str | None:
    """Return the file system type of the folder as Linux lists it; None if unknown."""
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
        real = root.resolve()
    except OSError:
        return None
    best: tuple[int, str] | None = None
    for line in lines:
        _, mounted, kind, *_ = line.split(" ")
        place = Path(mounted.replace("\\040", " "))
        if real.is_relative_to(place) and (best is None or len(place.parts) >= best[0]):
            best = (len(place.parts), kind)
    return None if best is None else best[1]

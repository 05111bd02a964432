"""The thin shell around a folder: a thread that hears of changes, waits until it is quiet, looks and tells.

    native    the operating system tells (watchfiles). The whole folder is scanned at the start, and every
              `rescan_seconds` to be sure; after every burst that may have been too much for the kernel's queue a rescan
              looks at what it may have swallowed
    polling   nobody tells: the whole folder is scanned every `poll_seconds`. For network file systems, and when the
              system's limit of watches is reached; the listener is told so, with the reason

The kernel's queue can overflow, and watchfiles does not pass that on (its handler takes events with a path only). So a
burst of `BURST` paths within one reading, with the glances before it, counts as an overflow. Once it is quiet the
rescan compares all files of the folders that the burst told of, and of those whose own mtime says that something came,
went or was renamed in them. What is left is files that may have been written in place and of whose folder nothing was
heard: they are looked at too, a few at a time and behind everything that is told.
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
"""Paths that are looked at together after some were not taken; twice as many each time that all are."""
MANY_PATHS = 500
"""While so many paths are looked at more will have come: a glance tells, and it goes on."""
SHORT_READ_MS, SETTLE_READ_MS = 1, 40
"""Milliseconds of a reading: after many were looked at, and after that when none of the next has settled yet."""
MOST_UNWRITTEN = 50_000
"""Changes that were taken and are not yet noted on disk: that is done when there is nothing else to do."""
LEFT_AT_ONCE = 1_000
"""Files that a rescan left, looked at together when nothing else is due."""
SCAN_SHARE = 0.05
"""Of the time may go into scans while nobody takes what they find."""
NETWORK_FILE_SYSTEMS = frozenset(
    "9p afs ceph cifs davfs fuse.rclone fuse.sshfs glusterfs lustre nfs nfs4 smb3 smbfs vboxsf".split()
)
"""Where changes made by others are not told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatcherTiming:
    debounce_seconds: float = 2.0
    poll_seconds: float = 10.0
    """Between scans of a folder that is polled."""
    rescan_seconds: float = 300.0
    """Between scans of a folder that is told of changes."""
    retry_seconds: float = 1.0
    """Until what was not taken is offered again, and until a folder that is down is tried again."""
    tick_milliseconds: int = 50
    """How often the thread looks whether something is due."""


class FolderListener(Protocol):
    """Whom a watcher tells. Called from the watcher's thread."""

    def accept(self, changes: Sequence[FileChange]) -> Collection[FileChange]:
        """Those that are safe now, in the queue say. The others are kept and offered again."""
        ...

    def mode_changed(self, mode: str, reason: str) -> None:
        """`native` or `polling`, and why."""
        ...

    def availability_changed(self, down: str | None, unreadable: Sequence[tuple[str, str]]) -> None:
        """After every look: why the folder is down, None when it is there; what could not be looked at, and why."""
        ...

    def scanned(self, began_at: datetime) -> None:
        """The whole folder was compared."""
        ...


class FolderWatcher:
    """Runs from `start` to `stop`. `stretch` is asked before every wait: the polling multiplier under load."""

    def __init__(
        self,
        folder: Folder,
        listener: FolderListener,
        clock: Clock,
        timing: WatcherTiming,
        *,
        stretch: Callable[[], float] = lambda: 1.0,
        force_polling: str | None = None,
    ) -> None:
        self._folder, self._listener, self._clock, self._timing = folder, listener, clock, timing
        self._stretch, self._force_polling = stretch, force_polling
        self._pending = DebouncedPaths(timing.debounce_seconds)
        self._stopping = Event()
        self._last_scan: float | None = None
        """Of everything."""
        self._last_rescan = 0.0
        self._scan_seconds = 0.0
        """What the last of both took."""
        self._left: list[str] = []
        """Files that the last rescan left alone, still to be looked at."""
        self._max_paths_per_scan = MOST_PATHS
        """Paths that are looked at together: to look at all who wait, every time, would cost more than the work."""
        self._look_again_at = 0.0
        """Some were not taken: until then nobody is asked."""
        self._reading = timing.tick_milliseconds
        """How long the next one takes."""
        self._burst_paths: set[str] = set()
        """Paths of a reading and of the glances before it: but for those they would have been told together."""
        self._down = False
        self._identity: tuple[int, int] | None = None
        self._rescan_requested = Event()
        self._thread = Thread(target=self._run, name=f"vedette-folder-{folder.watch_id}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when the thread has ended. What was not told is found at the next start."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def request_rescan(self) -> None:
        """Compare everything at the next opportunity."""
        self._rescan_requested.set()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    # ---- the thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._watch_once()
                self._folder.commit(())
            except Exception:
                # A folder is never left unwatched in silence: the log says why, and it starts over with a scan.
                log.exception(
                    "Watching a folder failed; it restarts with a scan",
                    extra={"action": "folder.failed", "watch_id": self._folder.watch_id},
                )
                self._stopping.wait(self._timing.retry_seconds)

    def _watch_once(self) -> None:
        """Until it is stopped, or the folder has to be taken up again."""
        self._identity = self._folder.identity()
        if self._identity is None:
            self._reconcile()  # tells that it is down
            self._stopping.wait(self._timing.retry_seconds)
            return
        reason = self._force_polling or polling_reason(self._folder.root)
        if reason is None:
            reason = self._watch_native()
        if reason is not None and not self._stopping.is_set():
            self._poll(reason)

    def _watch_native(self) -> str | None:
        """Native, until it is stopped or the folder is another (None), or until that is impossible (the reason)."""
        try:
            hearing = FileEvents(self._folder.root, self._stopping)
        except FileNotFoundError:
            return None  # it went in this moment: taken up again when it is back
        except (OSError, RuntimeError) as error:  # a limit was reached
            return str(error)
        with hearing:
            self._listener.mode_changed("native", "the operating system tells")
            self._rescan_requested.set()  # from here on changes are told: what happened before is found by a scan
            while True:
                reading = self._reading
                try:
                    paths = hearing.read(reading)
                except (OSError, RuntimeError) as error:  # a name is no text
                    return str(error)
                if paths is None:
                    return None
                if self._add_events(paths):
                    return None  # the root itself: perhaps another folder has its place, and even its number
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
        """Note what was told; whether it was about the root itself."""
        if not paths:
            return False
        now = self._clock.monotonic()
        relatives = self._folder.relatives(paths)
        for path in relatives:
            if path and self._might_matter(path):
                self._pending.add(path, now)
        self._burst_paths |= relatives
        if len(self._burst_paths) >= BURST or self._pending.rescan_wanted:
            self._pending.request_rescan(now, self._burst_paths)
            self._burst_paths.clear()
        return "" in relatives

    def _might_matter(self, path: str) -> bool:
        selection = self._folder.selection
        return selection.wants(path) or selection.enters(path)

    def _step(self, scan_seconds: float, *, resting: bool = True) -> bool:
        """Do what is due. False when the folder is down or another, and has to be taken up again."""
        glanced, self._reading = self._reading == SHORT_READ_MS, self._timing.tick_milliseconds
        if self._folder.identity() != self._identity:
            return False
        now, stretch = self._clock.monotonic(), self._stretch()
        pause = self._timing.retry_seconds if self._down else scan_seconds * stretch
        due = self._last_scan is None or now - self._last_scan >= pause
        if self._rescan_requested.is_set() or due:
            return self._reconcile()
        heard = self._pending.take_rescan(now, stretch) if self._may_rescan(now) else None
        if heard is not None:
            return self._scan(lambda: self._folder.rescan(heard))
        if now >= self._look_again_at:
            paths = self._pending.take_due(now, stretch, self._max_paths_per_scan)
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
        """While nobody takes what is found, the next scan would find the same."""
        refused = self._max_paths_per_scan < MOST_PATHS
        return not refused or now - self._last_rescan >= self._scan_seconds / SCAN_SHARE

    def _reconcile(self) -> bool:
        """Compare everything. False when the folder has to be taken up again."""
        self._rescan_requested.clear()
        began_at, began = self._clock.now(), self._clock.monotonic()
        same = self._scan(self._folder.full_scan)
        self._last_scan = began
        if not self._down:
            self._listener.scanned(began_at)
        return same

    def _scan(self, look_at_it: Callable[[], ScanOutcome]) -> bool:
        """Tell what it finds. False when the folder has to be taken up again."""
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
        """What is not taken waits."""
        self._folder.mark_pending(changes)
        taken = self._listener.accept(changes)
        self._folder.record(taken)
        if self._folder.unwritten > MOST_UNWRITTEN:
            self._folder.commit(())
        if len(taken) == len(changes):
            self._max_paths_per_scan, self._look_again_at = min(2 * self._max_paths_per_scan, MOST_PATHS), 0.0
            return
        self._max_paths_per_scan, self._look_again_at = PATHS_AFTER_REFUSAL, now + self._timing.retry_seconds
        later = now - self._timing.debounce_seconds * self._stretch() + self._timing.retry_seconds
        paths = {change.path for change in taken}
        for change in changes:
            if change.path not in paths:
                self._pending.add(change.path, later)
                if change.old_path is not None:
                    self._pending.add(change.old_path, later)


def polling_reason(root: Path) -> str | None:
    """Why the operating system will not tell of changes below; None when it will."""
    kind = _file_system(root)
    return (
        f"{root} is on {kind}, where changes of others are not told" if kind in NETWORK_FILE_SYSTEMS else None
    )


def _file_system(root: Path) -> str | None:
    """The type of the file system that the folder is on, as Linux lists it; None when it does not."""
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

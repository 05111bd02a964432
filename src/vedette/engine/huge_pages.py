"""Moves the memory of large processes to huge pages.

A graph of a million elements occupies memory that is rarely touched. With pages of 4 KiB the processor caches the
addresses of only a few megabytes; taking from a queue of a million entries was a third slower for that reason.
Linux can collapse 2 MiB of a process's memory into one page on request (transparent huge pages, usually set to
"madvise"). When the process is large and has grown, a background thread collapses its memory, with pauses, because
access to a page that is being moved blocks for some milliseconds. Not used in small processes, on other systems,
with a kernel set to "never", or where the process cannot read its own memory map.
"""

from __future__ import annotations

import ctypes
import logging
import os
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

__all__ = ["HugePages", "collapsible_spans", "large_pages"]

log = logging.getLogger(__name__)
HUGE_PAGE_BYTES = 2 * 1024 * 1024
MIN_PROCESS_BYTES = 256 * 1024 * 1024
"""Smaller processes are ignored."""
MIN_GROWTH_BYTES = 32 * 1024 * 1024
"""Minimum growth since the last run."""
MIN_RESIDENT_SHARE = 0.5
"""Mappings with a smaller resident share are left alone, like thread stacks.

Large dictionaries have unused room and are the most frequently read.
"""
PAUSE_SECONDS = 0.01
"""Pause between two pages: about a hundred megabytes per second."""
_ENABLED, _STATM, _SMAPS = (
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/proc/self/statm",
    "/proc/self/smaps",
)
_COLLAPSE = 25
"""MADV_COLLAPSE: collapse synchronously. Kernels before 6.1 reject it, which is harmless."""
_MAPPING = re.compile(
    r"^([0-9a-f]+)-([0-9a-f]+) rw-p \S+ 00:00 0 *(?:\[heap\]|\[anon:[^\]]*\])?\n(?:[A-Z].*\n)*", re.MULTILINE
)
_RESIDENT = re.compile(r"^Rss: +(\d+) kB$", re.MULTILINE)
_LARGE = re.compile(r"^AnonHugePages: +(\d+) kB$", re.MULTILINE)


def collapsible_spans(smaps: str) -> Iterator[tuple[int, int]]:
    """Start and end of anonymous mappings that are resident enough and not yet in huge pages.

    `smaps` is the kernel's text.
    """
    for mapping in _MAPPING.finditer(smaps):
        begin, end = _within(int(mapping[1], 16), int(mapping[2], 16))
        if end - begin >= HUGE_PAGE_BYTES and _is_worthwhile(
            end - begin, _bytes(_RESIDENT, mapping[0]), _bytes(_LARGE, mapping[0])
        ):
            yield begin, end


def _bytes(figure: re.Pattern[str], about: str) -> int:
    found = figure.search(about)
    return int(found[1]) * 1024 if found else 0


def _within(begin: int, end: int) -> tuple[int, int]:
    """The huge pages that lie within the range."""
    return -(-begin // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES, end // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES


def _is_worthwhile(size: int, resident: int, large: int) -> bool:
    return resident >= MIN_RESIDENT_SHARE * size and large < 0.9 * size


class HugePages:
    """Collapses new memory when it is called."""

    def __init__(self) -> None:
        self._permitted: bool | None = None
        self._seen = 0
        """The size of the process in bytes at the last run, or less if it has shrunk."""

    def look(self, pause: Callable[[float], bool] = lambda _: False) -> int:
        """Collapse memory allocated since the last run. Return the number of bytes.

        `pause` waits the given seconds and returns True to stop.
        """
        if self._permitted is None:
            self._permitted = _is_supported()
        try:
            return self._run(pause) if self._permitted else 0
        except OSError as problem:
            log.info("Huge pages are not used: %s", problem, extra={"action": "huge_pages.unavailable"})
            self._permitted = False
            return 0

    def _run(self, pause: Callable[[float], bool]) -> int:
        resident = _resident()
        if resident < max(MIN_PROCESS_BYTES, self._seen + MIN_GROWTH_BYTES):
            self._seen = min(self._seen, resident)
            return 0
        done = 0
        for begin, end in collapsible_spans(Path(_SMAPS).read_text()):
            for start in range(begin, end, HUGE_PAGE_BYTES):
                done += HUGE_PAGE_BYTES if _collapse(start) else 0
                if pause(PAUSE_SECONDS):
                    return done
        self._seen = _resident()
        return done


def _is_supported() -> bool:
    try:
        return "[never]" not in Path(_ENABLED).read_text()
    except OSError:
        return False


def _resident() -> int:
    return int(Path(_STATM).read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _collapse(start: int) -> bool:
    """Collapse one page. A failure is ignored: the memory may have been freed meanwhile."""
    return bool(_madvise()(start, HUGE_PAGE_BYTES, _COLLAPSE) == 0)


@cache
def _madvise() -> Callable[[int, int, int], int]:
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    return madvise


large_pages = HugePages()

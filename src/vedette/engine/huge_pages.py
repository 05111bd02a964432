"""Large pages as a policy: of a graph of a million elements, nearly all lie in memory that was not touched for long.

The processor finds out where such memory is page by page, and of pages of 4 KiB it remembers a few megabytes' worth: to
take from a line of a million cost a third more for this alone. Linux can put 2 MiB of a process's memory into one page,
if asked to (transparent huge pages; most systems are set to "madvise"). So when the process is large and has grown,
what it uses is put together, by a thread that nobody waits for; page by page with pauses, because whoever needs a page
that is being moved waits for some milliseconds. Processes that stay small, other systems, a kernel that is set to
"never", and those that do not let a process read about itself go without.
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
"""A process that is smaller is not looked at."""
MIN_GROWTH_BYTES = 32 * 1024 * 1024
"""So much larger must it have become since the last look."""
MIN_RESIDENT_SHARE = 0.5
"""A mapping of which a smaller share is in memory stays as it is, as stacks of threads do. Tables of large dictionaries
have room for more than they hold, and it is there that most is looked up."""
PAUSE_SECONDS = 0.01
"""Between two pages: with them about a hundred megabytes a second."""
_ENABLED, _STATM, _SMAPS = (
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/proc/self/statm",
    "/proc/self/smaps",
)
_COLLAPSE = 25
"""MADV_COLLAPSE: at once, and not when the kernel gets round to it. Older kernels than 6.1 refuse, which is nothing."""
_MAPPING = re.compile(
    r"^([0-9a-f]+)-([0-9a-f]+) rw-p \S+ 00:00 0 *(?:\[heap\]|\[anon:[^\]]*\])?\n(?:[A-Z].*\n)*", re.MULTILINE
)
_RESIDENT = re.compile(r"^Rss: +(\d+) kB$", re.MULTILINE)
_LARGE = re.compile(r"^AnonHugePages: +(\d+) kB$", re.MULTILINE)


def collapsible_spans(smaps: str) -> Iterator[tuple[int, int]]:
    """Begin and end of what is anonymous, full enough, and not in large pages yet; `smaps` as the kernel writes it."""
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
    """The large pages that lie within."""
    return -(-begin // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES, end // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES


def _is_worthwhile(size: int, resident: int, large: int) -> bool:
    return resident >= MIN_RESIDENT_SHARE * size and large < 0.9 * size


class HugePages:
    """Looks now and then whether there is something to be put together."""

    def __init__(self) -> None:
        self._permitted: bool | None = None
        self._seen = 0
        """Bytes of the process when it was looked at last, or fewer since."""

    def look(self, pause: Callable[[float], bool] = lambda _: False) -> int:
        """Put together what has come since the last time; returns how many bytes.

        `pause` waits for so many seconds, and says whether that is enough.
        """
        if self._permitted is None:
            self._permitted = _is_supported()
        try:
            return self._run(pause) if self._permitted else 0
        except OSError as problem:
            log.info("Huge pages are not used: %s", problem, extra={"action": "pages.unreadable"})
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
    """What the kernel cannot do stays as it is: the process may have let go of the memory meanwhile."""
    return bool(_madvise()(start, HUGE_PAGE_BYTES, _COLLAPSE) == 0)


@cache
def _madvise() -> Callable[[int, int, int], int]:
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    return madvise


large_pages = HugePages()

"""File system events of a folder, through the Rust part of `watchfiles` without its Python wrapper.

The wrapper creates an object per event, uses one fixed wait, and falls back to polling silently. This module returns
only paths, and a caller with pending work can poll without waiting.
"""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Self

from vedette.extras import require_packages

__all__ = ["FileEvents"]


class FileEvents:
    """Collects events from its construction on.

    Raises OSError if the system refuses, FileNotFoundError if the root is gone.
    """

    def __init__(self, root: Path, stopping: Event) -> None:
        require_packages(["watchfiles"], extra="files", feature="a folder watch")
        from watchfiles._rust_notify import RustNotify

        self._stopping = stopping
        self._notify = RustNotify(
            [str(root)],
            debug=False,
            force_polling=False,
            poll_delay_ms=0,
            recursive=True,
            ignore_permission_denied=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._notify.close()

    def read(self, milliseconds: int) -> set[str] | None:
        """Return the absolute paths with events since the last call; None if the watcher should stop.

        Waits up to `milliseconds` for the first event, and about as long until a quarter of that time passes without
        an event.
        """
        reported = self._notify.watch(milliseconds, max(1, milliseconds // 4), milliseconds, self._stopping)
        if isinstance(reported, str):
            return set() if reported == "timeout" else None
        return {path for _, path in reported}

"""What the operating system tells of a folder: the part of `watchfiles` that is in Rust, without its Python around it.

That makes an object of each word, waits as long each time, and falls back to polling in silence where it thinks that
it must. Here the paths are all that is told, and whoever has work at hand only glances.
"""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Self

from vedette.extras import require_packages

__all__ = ["FileEvents"]


class FileEvents:
    """From the moment that it is made. OSError when the system refuses, FileNotFoundError when the root is gone."""

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
        """Paths, absolute, of which something was told since the last time; None when it is to stop.

        Waits so long for the first, and about as long until for a quarter of it nothing more came.
        """
        told = self._notify.watch(milliseconds, max(1, milliseconds // 4), milliseconds, self._stopping)
        if isinstance(told, str):
            return set() if told == "timeout" else None
        return {path for _, path in told}

"""Source files to ingest: copies of installed Python files, the same for every side."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

__all__ = ["copy_sources"]

_SMALLEST, _LARGEST = 200, 40_000


def copy_sources(to: Path, count: int) -> int:
    """Copy `count` Python files into folders of a hundred. Return the total bytes."""
    found = sorted(
        path
        for path in Path(sysconfig.get_paths()["purelib"]).rglob("*.py")
        if _SMALLEST < path.stat().st_size < _LARGEST
    )
    size = 0
    for number in range(count):
        path = found[number % len(found)]
        target = to / f"{number // 100:04}" / f"{number:06}_{path.name}"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        if number >= len(found):  # so that no two files have the same content
            with target.open("a", encoding="utf-8") as file:
                file.write(f"\n# copy {number}\n")
        size += target.stat().st_size
    return size

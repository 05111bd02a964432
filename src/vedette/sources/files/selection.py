"""Which files of a folder are taken: globs, and how deep to go.

A glob without a slash is compared with names: `*.py` with the name of a file; of the ignored ones, `node_modules` with
the name of any folder on the way as well. A glob with slashes is compared with the end of the path's folders, starting
at any folder (`src/*.c` also takes `lib/src/x.c`), or at the root when it begins with a slash. What is below a match
matches too. `*` and `?` stay within a name, `**` does not.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from vedette.sources.files.globs import Glob, Globs

__all__ = ["ANY_DEPTH", "FolderSelection"]

ANY_DEPTH = -1
_PROBES = ("\0", "\0\0\0/\0\0")
"""Paths below a folder that no glob names by accident: if all are ignored, everything below it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderSelection:
    """Paths are relative to the folder, with slashes."""

    patterns: tuple[str, ...] = ()
    """None is all."""
    ignore_patterns: tuple[str, ...] = ()
    depth: int = ANY_DEPTH
    """Folders below the root that are entered; 0 is the root alone."""
    _taken: Globs = field(init=False, repr=False, compare=False)
    _ignored: Globs = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_taken", Globs(map(_taking, self.patterns)))
        object.__setattr__(self, "_ignored", Globs(map(_ignoring, self.ignore_patterns)))

    def wants(self, path: str) -> bool:
        """Whether this file is taken."""
        if self.depth != ANY_DEPTH and path.count("/") > self.depth:
            return False
        if self.ignore_patterns and self._ignored.match(path):
            return False
        return not self.patterns or self._taken.match(path)

    def enters(self, folder: str) -> bool:
        """Whether anything below this folder could be taken."""
        if self.depth != ANY_DEPTH and folder.count("/") + 1 > self.depth:
            return False
        if not self.ignore_patterns:
            return True
        return not all(self._ignored.match(f"{folder}/{probe}") for probe in _PROBES)


def _taking(glob: str) -> Glob:
    return Glob(glob, below=glob.strip("/").count("/") > 0)


def _ignoring(glob: str) -> Glob:
    return Glob(glob, below=True)

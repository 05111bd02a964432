"""Which files of a folder are included: globs and maximum depth.

A glob without a slash is compared with names: `*.py` with the name of a file; an ignore glob such as `node_modules`
also with the name of every parent folder. A glob with slashes is compared with the end of the path, starting at any
folder (`src/*.c` also matches `lib/src/x.c`), or at the root if it begins with a slash. Everything below a match
matches too. `*` and `?` stay within a name, `**` does not.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from vedette.sources.files.globs import Glob, Globs

__all__ = ["ANY_DEPTH", "FolderSelection"]

ANY_DEPTH = -1
_PROBES = ("\0", "\0\0\0/\0\0")
"""Sample paths that no glob matches by accident. If all are ignored, the whole folder is ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderSelection:
    """Paths are relative to the folder and use slashes."""

    patterns: tuple[str, ...] = ()
    """None includes all files."""
    ignore_patterns: tuple[str, ...] = ()
    depth: int = ANY_DEPTH
    """Maximum depth of folders below the root; 0 is the root only."""
    _taken: Globs = field(init=False, repr=False, compare=False)
    _ignored: Globs = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_taken", Globs(map(_taking, self.patterns)))
        object.__setattr__(self, "_ignored", Globs(map(_ignoring, self.ignore_patterns)))

    def includes(self, path: str) -> bool:
        """True if this file is included."""
        if self.depth != ANY_DEPTH and path.count("/") > self.depth:
            return False
        if self.ignore_patterns and self._ignored.match(path):
            return False
        return not self.patterns or self._taken.match(path)

    def descends_into(self, folder: str) -> bool:
        """True if a file below this folder could be included."""
        if self.depth != ANY_DEPTH and folder.count("/") + 1 > self.depth:
            return False
        if not self.ignore_patterns:
            return True
        return not all(self._ignored.match(f"{folder}/{probe}") for probe in _PROBES)


def _taking(glob: str) -> Glob:
    return Glob(glob, below=glob.strip("/").count("/") > 0)


def _ignoring(glob: str) -> Glob:
    return Glob(glob, below=True)

"""Which files of a folder are taken: globs, and how deep to go.

A glob without a slash is compared with names: `*.py` with the name of a file; of the ignored ones, `node_modules` with
the name of any folder on the way as well. A glob with slashes is compared with the end of the path's folders, starting
at any folder (`src/*.c` also takes `lib/src/x.c`), or at the root when it begins with a slash. What is below a match
matches too. `*` and `?` stay within a name, `**` does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

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
    _taken: re.Pattern[str] | None = field(init=False, repr=False, compare=False)
    _ignored: re.Pattern[str] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_taken", _any_of(map(_taking, self.patterns)))
        object.__setattr__(self, "_ignored", _any_of(map(_ignoring, self.ignore_patterns)))

    def wants(self, path: str) -> bool:
        """Whether this file is taken."""
        if self.depth != ANY_DEPTH and path.count("/") > self.depth:
            return False
        if self._ignored is not None and self._ignored.fullmatch(path):
            return False
        return self._taken is None or self._taken.fullmatch(path) is not None

    def enters(self, folder: str) -> bool:
        """Whether anything below this folder could be taken."""
        if self.depth != ANY_DEPTH and folder.count("/") + 1 > self.depth:
            return False
        ignored = self._ignored
        return ignored is None or not all(ignored.fullmatch(f"{folder}/{probe}") for probe in _PROBES)


def _any_of(globs: Iterable[str]) -> re.Pattern[str] | None:
    """One expression for all of them; None for none."""
    text = "|".join(globs)
    return re.compile(text, re.DOTALL) if text else None


def _taking(glob: str) -> str:
    return _expression(glob, below=glob.strip("/").count("/") > 0)


def _ignoring(glob: str) -> str:
    return _expression(glob, below=True)


def _expression(glob: str, *, below: bool) -> str:
    start = "" if glob.startswith("/") else r"(?:.*/)?"
    end = r"(?:/.*)?" if below else ""
    return f"(?:{start}{_translated(glob.strip('/'))}{end})"


def _translated(glob: str) -> str:
    parts: list[str] = []
    position = 0
    while position < len(glob):
        for token, meaning in (("**/", "(?:.*/)?"), ("**", ".*"), ("*", "[^/]*"), ("?", "[^/]")):
            if glob.startswith(token, position):
                parts.append(meaning)
                position += len(token)
                break
        else:
            text, position = _one(glob, position)
            parts.append(text)
    return "".join(parts)


def _one(glob: str, position: int) -> tuple[str, int]:
    """A character, or a set of them in brackets; a bracket that is not closed stands for itself."""
    end = glob.find("]", position + 2) if glob[position] == "[" else -1
    if end < 0:
        return re.escape(glob[position]), position + 1
    inner = glob[position + 1 : end]
    negated = inner[0] in "!^"
    members = inner[1:] if negated else inner
    escaped = re.sub(r"([\\\[\]&~|^])", r"\\\1", members)
    try:
        re.compile(f"[{escaped}]")
    except re.error:  # such as [z-a]
        return re.escape(glob[position]), position + 1
    return f"[{'^/' if negated else ''}{escaped}]", end + 1

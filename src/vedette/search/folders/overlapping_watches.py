"""Find out whether another watch of the same collection covers a file.

Two watches may cover the same file, for example a folder and its parent. The chunks of a file stay in the collection as
long as one of them covers it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cached_property

from vedette.clock import Clock
from vedette.errors import FolderError
from vedette.handshake.config import WatchFolderConfig, WatchType
from vedette.handshake.exclusions import Exclusion, find_exclusion
from vedette.handshake.tables import HandshakeTables
from vedette.sources.files.selection import FolderSelection

__all__ = ["OverlappingWatches", "selection_from_config"]


def selection_from_config(config: WatchFolderConfig) -> FolderSelection:
    depth = config.recursive_depth if config.recursive else 0
    return FolderSelection(patterns=config.patterns, ignore_patterns=config.ignore_patterns, depth=depth)


class OverlappingWatches:
    """The other folder watches of a watch's collection. Create one per batch: they are read once, on first use.

    A disabled watch counts too: the chunks of its files stay until it is removed.
    """

    def __init__(self, tables: HandshakeTables, config: WatchFolderConfig, clock: Clock) -> None:
        self._tables, self._config, self._now = tables, config, clock.now()

    def any_covers(self, path: str) -> bool:
        """Return True if one of them covers this absolute path. The file need not exist."""
        return any(
            path.startswith(root)
            and selection.includes(path.removeprefix(root))
            and find_exclusion(exclusions, path, self._now) is None
            for root, selection, exclusions in self._others
        )

    def any_needs(self, path: str) -> bool:
        """Return True if one of them covers this absolute path and the file exists."""
        return self.any_covers(path) and os.path.lexists(path)

    @cached_property
    def _others(self) -> list[tuple[str, FolderSelection, Sequence[Exclusion]]]:
        return list(self._read_others())

    def _read_others(self) -> Iterator[tuple[str, FolderSelection, Sequence[Exclusion]]]:
        """Yield the folder with a final slash, the selection and the exclusions of each."""
        own = self._config
        for config in (row.config for row in self._tables.watches()):
            if config.watch_id == own.watch_id or config.collection != own.collection:
                continue
            if config.watch_type is WatchType.SOURCE:
                continue
            try:
                exclusions = self._tables.exclusions(config.watch_id)
            except FolderError:  # the watch was removed after `watches` had listed it
                continue
            yield config.path.rstrip("/") + "/", selection_from_config(config), exclusions

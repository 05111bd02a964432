"""Which watches cover a file: text stays while another watch of the collection covers the file."""

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
    """The other watches of a watch's collection, read on first use. For one batch.

    A disabled watch counts too: its text stays until it is enabled or removed.
    """

    def __init__(self, tables: HandshakeTables, config: WatchFolderConfig, clock: Clock) -> None:
        self._tables, self._config, self._now = tables, config, clock.now()

    def any_covers(self, path: str) -> bool:
        """True if one of them covers this absolute path, whether or not the file exists."""
        return any(
            path.startswith(root)
            and selection.wants(path.removeprefix(root))
            and find_exclusion(exclusions, path, self._now) is None
            for root, selection, exclusions in self._others
        )

    def any_needs(self, path: str) -> bool:
        """The same, if the file exists."""
        return self.any_covers(path) and os.path.lexists(path)

    @cached_property
    def _others(self) -> list[tuple[str, FolderSelection, Sequence[Exclusion]]]:
        return list(self._looked_up())

    def _looked_up(self) -> Iterator[tuple[str, FolderSelection, Sequence[Exclusion]]]:
        """Root with a slash, its selection, and its exclusions."""
        mine = self._config
        for config in (row.config for row in self._tables.watches()):
            if config.watch_id == mine.watch_id or config.collection != mine.collection:
                continue
            if config.watch_type is WatchType.SOURCE:
                continue
            try:
                exclusions = self._tables.exclusions(config.watch_id)
            except FolderError:  # removed since it was listed
                continue
            yield config.path.rstrip("/") + "/", selection_from_config(config), exclusions

"""Which watches take a file: what one of them lets go stays where another of the same collection takes it."""

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
    """The other watches of a watch's collection, as they are when it is first asked. For one batch.

    One that is disabled counts as well: its text stays until it is enabled or removed.
    """

    def __init__(self, tables: HandshakeTables, config: WatchFolderConfig, clock: Clock) -> None:
        self._tables, self._config, self._now = tables, config, clock.now()

    def any_covers(self, path: str) -> bool:
        """Whether one of them takes a file of this path, absolute, should it be there."""
        return any(
            path.startswith(root)
            and selection.wants(path.removeprefix(root))
            and find_exclusion(exclusions, path, self._now) is None
            for root, selection, exclusions in self._others
        )

    def any_needs(self, path: str) -> bool:
        """The same, and it is there: a file that is gone is nobody's."""
        return self.any_covers(path) and os.path.lexists(path)

    @cached_property
    def _others(self) -> list[tuple[str, FolderSelection, Sequence[Exclusion]]]:
        return list(self._looked_up())

    def _looked_up(self) -> Iterator[tuple[str, FolderSelection, Sequence[Exclusion]]]:
        """Root with a slash, what is taken of it, and what is left alone all the same."""
        mine = self._config
        for config in (row.config for row in self._tables.watches()):
            if config.watch_id == mine.watch_id or config.collection != mine.collection:
                continue
            if config.watch_type is WatchType.SOURCE:
                continue
            try:
                exclusions = self._tables.exclusions(config.watch_id)
            except FolderError:  # removed since we listed it
                continue
            yield config.path.rstrip("/") + "/", selection_from_config(config), exclusions

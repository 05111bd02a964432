"""What storms over sources have in common: a reader that looks, fails and dies, and a journal whose appends fail."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from random import Random
from types import ModuleType
from typing import Any

import pytest

from vedette.errors import SourceError, StoreError, VedetteError
from vedette.sources import reader as reading
from vedette.sources.reader import _poll_once

__all__ = ["SourceStorm", "append_in_pieces"]


def append_in_pieces(monkeypatch: pytest.MonkeyPatch, reader: ModuleType) -> None:
    """So small that few changes already are several appends; and nobody waits between two looks."""
    for module in (reader, reading):
        monkeypatch.setattr(module, "MAX_APPEND_EVENTS", 3)
    monkeypatch.setattr(reading, "POLL_SECONDS", 0.0)


class SourceStorm(ABC):
    """One storm over the source of a shop."""

    def __init__(self, shop: Any, rng: Random) -> None:
        self.shop, self.rng = shop, rng
        self.reader: Any = None
        self.settled = False
        self._whole_append, self._failing = shop.journal.append, ""
        shop.journal.append = self._append

    def _append(self, *args: Any) -> Any:
        failing, self._failing = self._failing, ""
        if failing == "before":
            raise StoreError("E6002", "the disk is full")
        done = self._whole_append(*args)
        if failing == "after":
            raise SourceError("E6104", "killed")
        return done

    # What happens

    @abstractmethod
    def write(self) -> None:
        """Somebody changes something."""

    @abstractmethod
    def lose(self) -> None:
        """The place in the server's log, or the line to it, is gone."""

    def look(self, failing: str | None = None) -> None:
        """One look of the loop, as it is or failing."""
        if self.reader is None or self.reader_is_cut_off():
            self.reader, self.settled = self.shop.reader(), False
        self._failing = self.rng.choice(["", "", "before", "after"]) if failing is None else failing
        self.reader._look_again = 0.0
        try:
            _poll_once(self.reader, self.shop.journal, self.shop.source, settled=self.settled)
            self.settled = True
        except VedetteError:
            pass
        self._failing = ""

    def reader_is_cut_off(self) -> bool:
        return False

    def die(self) -> None:
        self.reader = None

    # What must hold

    @abstractmethod
    def compare(self) -> None:
        """The journal says what the source says."""

    def blow(self, acts: Sequence[Callable[[], None]], *, times: int, looks: int) -> None:
        """Anything in any order; then so many looks that nothing disturbs, and the journal is right."""
        try:
            for _ in range(times):
                self.rng.choice(acts)()
            for _ in range(looks):
                self.look("")
            self.compare()
            assert {partition.state for partition in self.shop.journal.partitions()} == {"live"}
        finally:
            self.shop.close()

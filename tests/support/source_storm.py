"""Base of the random tests of readers: a reader that polls, fails and is killed, and a journal whose appends fail."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from random import Random
from types import ModuleType
from typing import Any

import pytest

from vedette.errors import SourceError, StoreError, VedetteError
from vedette.sources import reader as shared
from vedette.sources import reader_loop
from vedette.sources.reader_loop import _poll_once

__all__ = ["SourceStorm", "append_in_pieces"]


def append_in_pieces(monkeypatch: pytest.MonkeyPatch, reader: ModuleType) -> None:
    """Limit appends to three events, so that a few changes need several appends. Polls do not wait."""
    for module in (reader, shared):
        monkeypatch.setattr(module, "MAX_APPEND_EVENTS", 3)
    monkeypatch.setattr(reader_loop, "POLL_SECONDS", 0.0)


class SourceStorm(ABC):
    """Random writes to one source, with random failures of its reader."""

    def __init__(self, shop: Any, rng: Random) -> None:
        self.shop, self.rng = shop, rng
        self.reader: Any = None
        self.recovered = False
        self._real_append, self._failing = shop.journal.append, ""
        shop.journal.append = self._append

    def _append(self, *args: Any) -> Any:
        failing, self._failing = self._failing, ""
        if failing == "before":
            raise StoreError("E6002", "the disk is full")
        done = self._real_append(*args)
        if failing == "after":
            raise SourceError("E6104", "killed")
        return done

    # --- steps

    @abstractmethod
    def write(self) -> None:
        """Change something at the source."""

    @abstractmethod
    def lose_position(self) -> None:
        """Delete the reader's position at the server, or break its connection."""

    def poll_once(self, failing: str | None = None) -> None:
        """Poll once. `failing` is empty, `before` or `after` the append; None chooses at random."""
        if self.reader is None or self.reader_is_cut_off():
            self.reader, self.recovered = self.shop.reader(), False
        self._failing = self.rng.choice(["", "", "before", "after"]) if failing is None else failing
        self.reader._next_collection_check = 0.0
        try:
            _poll_once(self.reader, self.shop.journal, self.shop.source, recovered=self.recovered)
            self.recovered = True
        except VedetteError:
            pass
        self._failing = ""

    def reader_is_cut_off(self) -> bool:
        return False

    def kill_reader(self) -> None:
        self.reader = None

    # --- checks

    @abstractmethod
    def compare(self) -> None:
        """Check that the journal has the documents of the source."""

    def run_steps(self, steps: Sequence[Callable[[], None]], *, times: int, polls: int) -> None:
        """Run random steps. Then poll `polls` times without failures, and compare the journal with the source."""
        try:
            for _ in range(times):
                self.rng.choice(steps)()
            for _ in range(polls):
                self.poll_once("")
            self.compare()
            assert {partition.state for partition in self.shop.journal.partitions()} == {"live"}
        finally:
            self.shop.close()

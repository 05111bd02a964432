"""A thread that changes the demo's project board, so that the demo shows events."""

from __future__ import annotations

import logging
from threading import Event, Thread

from vedette.engine.data_directory import Vedette
from vedette.processes.demo import board

__all__ = ["DemoActivity"]

log = logging.getLogger(__name__)


class DemoActivity(Thread):
    """Changes the board every `interval_seconds` until `stop`. The changes are logged at level info."""

    def __init__(self, vedette: Vedette, interval_seconds: float) -> None:
        super().__init__(name="vedette-demo", daemon=True)
        self._vedette, self._interval_seconds = vedette, interval_seconds
        self._stopping = Event()

    def run(self) -> None:
        with self._vedette.database(board.DATABASE).session() as session:
            while not self._stopping.wait(self._interval_seconds):
                log.info("Demo: %s", board.advance(session), extra={"action": "demo.advanced"})

    def stop(self) -> None:
        self._stopping.set()
        self.join()

"""Run one reader thread per source of the journal. Threads start and stop as sources are added and removed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from random import Random
from threading import Event as Flag
from threading import Thread
from typing import NamedTuple

from vedette.clock import Clock
from vedette.errors import VedetteError
from vedette.sources.journal.seam import CollectionJournal, open_journal
from vedette.sources.reader import ExponentialBackoff, SourceHealth, SourceReader
from vedette.sources.reader_loop import run_reader
from vedette.sources.records import Source
from vedette.sources.source_options import require_pymongo

__all__ = ["READERS", "ReaderSupervisor", "open_reader"]

log = logging.getLogger(__name__)


def _mongodb(source: Source, journal: CollectionJournal, clock: Clock) -> SourceReader:
    require_pymongo()
    from vedette.sources.mongodb.reader import MongodbReader

    return MongodbReader(source, journal, clock)


def _postgres(source: Source, journal: CollectionJournal, clock: Clock) -> SourceReader:
    from vedette.sources.postgres.reader import PostgresReader

    return PostgresReader(source, journal, clock)


def _graph(source: Source, journal: CollectionJournal, clock: Clock) -> SourceReader:
    from vedette.sources.graph.reader import GraphLogReader

    return GraphLogReader(source, journal, clock)


READERS: dict[str, Callable[[Source, CollectionJournal, Clock], SourceReader]] = {
    "mongodb": _mongodb,
    "postgres": _postgres,
    "graph": _graph,
}


def open_reader(source: Source, journal: CollectionJournal, clock: Clock) -> SourceReader:
    return READERS[source.kind](source, journal, clock)


class _ReaderThread(NamedTuple):
    source: Source
    """The source as it was when its reader started; a source that was added again may have another address."""
    thread: Thread
    stop: Flag


class ReaderSupervisor:
    """Runs the readers of all sources. Not thread-safe; its owner calls `reconcile` periodically."""

    def __init__(
        self,
        journal: str,
        clock: Clock,
        rng: Random,
        health: Callable[[Source, Random], SourceHealth] = lambda _, rng: ExponentialBackoff(rng),
    ) -> None:
        """`health` returns the object that decides when a source may be read."""
        self._journal = open_journal(journal, clock)
        self._clock, self._rng, self._health = clock, rng, health
        self._threads: dict[str, _ReaderThread] = {}

    def reconcile(self) -> None:
        """Start readers of new sources, stop those of removed ones, restart those of changed ones."""
        wanted = {source.name: replace(source, paused=False) for source in self._journal.sources()}
        for name, running in list(self._threads.items()):
            if wanted.get(name) != running.source or not running.thread.is_alive():
                running.stop.set()
                # A source has one reader: the next one starts after the thread of the previous one has ended.
                if not running.thread.is_alive():
                    del self._threads[name]
        for name, source in wanted.items():
            if name not in self._threads:
                self._start(source)

    def close(self) -> None:
        for running in self._threads.values():
            running.stop.set()
        for running in self._threads.values():
            running.thread.join(timeout=10)
        self._journal.close()

    def _start(self, source: Source) -> None:
        stop = Flag()
        rng = Random(self._rng.random())  # noqa: S311 - jitter
        thread = Thread(
            target=self._read, args=(source, stop, rng), name=f"source {source.name}", daemon=True
        )
        self._threads[source.name] = _ReaderThread(source, thread, stop)
        thread.start()

    def _read(self, source: Source, stop: Flag, rng: Random) -> None:
        """Open the reader, with retries, and run it. The thread has its own journal connection."""
        journal = open_journal(self._journal.address, self._clock)
        health = self._health(source, rng)
        while not stop.is_set():
            try:
                pause = health.seconds_until_allowed()
                if pause:
                    stop.wait(pause)
                    continue
                reader = open_reader(source, journal, self._clock)
            except VedetteError as error:
                extra = {"action": "source.open_failed", "source": source.name, "code": error.code}
                log.warning("Opening source %s failed; retrying: %s", source.name, error, extra=extra)
                stop.wait(health.record_failure(error))
                continue
            try:
                run_reader(reader, journal, source, stop, self._clock, health)
            finally:
                reader.close()
            break
        journal.close()

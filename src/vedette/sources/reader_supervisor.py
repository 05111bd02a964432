"""Run one reader thread per source, as sources are added, paused and removed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random
from threading import Event as Flag
from threading import Thread
from typing import NamedTuple

from vedette.clock import Clock, SystemClock
from vedette.errors import SourceError, VedetteError
from vedette.extras import require_packages
from vedette.sources.journal.seam import CollectionJournal, open_journal
from vedette.sources.mongodb.tokens import resume_tokens
from vedette.sources.rate_limit import TokenBucket
from vedette.sources.reader import QuickRetries, SourceHealth, SourceReader, run_reader
from vedette.sources.records import Source

__all__ = ["READERS", "ReaderSupervisor", "open_reader", "validate_source"]

log = logging.getLogger(__name__)


def _mongodb(source: Source, journal: CollectionJournal, clock: Clock) -> SourceReader:
    _require_pymongo()
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
_OPTIONS = {
    "mongodb": {"database", "collections", "pre_images", "resume_after"},
    "postgres": {"tables", "slot"},
    "graph": set[str](),
}
_COMMON_OPTIONS = {"start", "on_gap", "events_per_second", "bytes_per_second"}
_CHOICES = {"start": ("beginning", "now"), "on_gap": ("scan", "resync"), "pre_images": ("true", "false")}


def validate_source(source: Source, others: Iterable[Source] = ()) -> None:
    """Raises E6101 for an invalid name, kind or option, or one that conflicts with another source."""
    if not source.name.isidentifier() or source.name.startswith("_"):
        raise _invalid(f"{source.name!r} is no name: letters, digits and _, not first a digit or _")
    if source.kind not in READERS:
        raise _invalid(f"there are no sources of the kind {source.kind!r}; there are {', '.join(READERS)}")
    if not 1 <= source.partitions <= 256:
        raise _invalid(f"a source has 1 to 256 partitions, not {source.partitions}")
    allowed = _COMMON_OPTIONS | _OPTIONS[source.kind]
    for name, value in source.options.items():
        if name not in allowed:
            raise _invalid(f"{source.kind} has no option {name!r}; it has {', '.join(sorted(allowed))}")
        if name in _CHOICES and value not in _CHOICES[name]:
            raise _invalid(f"{name} is {' or '.join(_CHOICES[name])}, not {value!r}")
        if name == "resume_after":
            resume_tokens(value)
    TokenBucket.from_options(source.options, SystemClock())
    _check_address(source)
    for other in others:
        if other.kind == source.kind == "graph" and other.tenant == source.tenant:
            raise _invalid(
                f"the database {source.tenant} has the graph {other.name} already, and types of two would be one"
            )


def _check_address(source: Source) -> None:
    """Raise E6101 if the address has a wrong form. Whether a server answers there is checked by the reader."""
    check = _ADDRESS_CHECKS.get(source.kind)
    if check is None:
        return
    problem = check(source.address)
    if problem:
        raise _invalid(f"{source.kind} has no such address ({' '.join(problem.split())})")


def _mongodb_problem(address: str) -> str:
    """Return why the address is not one of MongoDB, or an empty text."""
    _require_pymongo()
    from pymongo import uri_parser
    from pymongo.errors import PyMongoError

    if address.startswith("mongodb+srv://"):  # parsing it would query DNS
        return ""
    try:
        uri_parser.parse_uri(address, validate=False)
    except (PyMongoError, ValueError) as problem:
        return str(problem)
    return ""


def _postgres_problem(address: str) -> str:
    """Return why the address is not one of PostgreSQL, or an empty text."""
    from psycopg import Error
    from psycopg.conninfo import conninfo_to_dict

    try:
        conninfo_to_dict(address)
    except (Error, ValueError) as problem:
        return str(problem)
    return ""


_ADDRESS_CHECKS = {"mongodb": _mongodb_problem, "postgres": _postgres_problem}


def _require_pymongo() -> None:
    require_packages(["pymongo"], extra="pipeline", feature="a MongoDB source")


def open_reader(source: Source, journal: CollectionJournal, clock: Clock) -> SourceReader:
    return READERS[source.kind](source, journal, clock)


class _ReaderThread(NamedTuple):
    source: Source
    """The source as it was when its reader started; a source that was added again may have another address."""
    thread: Thread
    stop: Flag


class ReaderSupervisor:
    """Call `reconcile` periodically: it starts readers of new sources and stops those of removed ones."""

    def __init__(
        self,
        journal: str,
        clock: Clock,
        rng: Random,
        care: Callable[[Source, Random], SourceHealth] = lambda _, rng: QuickRetries(rng),
    ) -> None:
        """`care` returns the health of a source and decides when it may be read."""
        self._journal = open_journal(journal, clock)
        self._clock, self._rng, self._care = clock, rng, care
        self._threads: dict[str, _ReaderThread] = {}

    def reconcile(self) -> None:
        wanted = {source.name: replace(source, paused=False) for source in self._journal.sources()}
        for name, reading in list(self._threads.items()):
            if wanted.get(name) != reading.source or not reading.thread.is_alive():
                reading.stop.set()
                if (
                    not reading.thread.is_alive()
                ):  # a source has one reader: the next one waits until the last has ended
                    del self._threads[name]
        for name, source in wanted.items():
            if name not in self._threads:
                self._start(source)

    def close(self) -> None:
        for reading in self._threads.values():
            reading.stop.set()
        for reading in self._threads.values():
            reading.thread.join(timeout=10)
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
        """The thread of one reader, with its own journal connection. A reader that cannot be opened is retried."""
        journal = open_journal(self._journal.address, self._clock)
        care = self._care(source, rng)
        while not stop.is_set():
            try:
                pause = care.seconds_until_allowed()
                if pause:
                    stop.wait(pause)
                    continue
                reader = open_reader(source, journal, self._clock)
            except VedetteError as error:
                extra = {"action": "source.unreachable", "source": source.name, "code": error.code}
                log.warning("Source %s cannot be opened and is retried: %s", source.name, error, extra=extra)
                stop.wait(care.record_failure(error))
                continue
            try:
                run_reader(reader, journal, source, stop, self._clock, care)
            finally:
                reader.close()
            break
        journal.close()


def _invalid(why: str) -> SourceError:
    return SourceError("E6101", why)

"""What a reader of a source is, and the loop that keeps one going.

    begin    choose a place to start: a scan of everything and then the stream, or the stream from now on
    poll     append what has happened since; the journal's append comes before the source hears "received"

A source that no longer has the changes after our place (E6105) makes its partitions *stale*: nothing more is delivered
of them until a scan has been compared with the journal's last images and the difference appended. That is lossless for
whoever follows a state: what happened in between is told as one change. With `on_gap: resync` the epoch changes, too,
and clients are told to resync; where nothing was scanned to begin with (`start: now`), nothing is now, and what is
known of documents is forgotten.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from random import Random
from threading import Event as Flag
from typing import NamedTuple, Protocol, TypeVar

from vedette.clock import Clock
from vedette.errors import SourceError, VedetteError
from vedette.sources.images import encode_image
from vedette.sources.journal.seam import CollectionJournal
from vedette.sources.rate_limit import TokenBucket
from vedette.sources.records import FIRST_SCAN, QuarantinedChange, Source, SourceEvent

__all__ = [
    "QuickRetries",
    "ScannedDocument",
    "SourceHealth",
    "SourceReader",
    "append_scan_diff",
    "chunks",
    "encode_or_quarantine",
    "quick_pause",
    "run_reader",
]

log = logging.getLogger(__name__)
Item = TypeVar("Item")

MAX_APPEND_EVENTS = 1_000
"""Events of one append."""
MAX_APPEND_BYTES = 16 * 1024 * 1024
"""Their images, when they are large: an append ends with the one that passes it."""
POLL_SECONDS = 0.5
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 60.0


class SourceReader(Protocol):
    """Reads one source. Errors: E6104 try again, E6105 the place is lost, E6106 a person must look."""

    def begin(self, *, scan: bool) -> None:
        """Start anew: with a scan of everything there is, or from now on."""
        ...

    def poll(self, seconds: float) -> tuple[int, int]:
        """Append what there is, waiting so long for the first; returns how many events and how many bytes."""
        ...

    def forget(self) -> None:
        """The source is removed: give back what the place that is read keeps for us."""
        ...

    def close(self) -> None: ...


class SourceHealth(Protocol):
    """How a source fares, and when it may be read (`vedette.handshake.tables.source_health`)."""

    def seconds_until_allowed(self) -> float:
        """How long to wait before asking again; 0: it may be read now."""
        ...

    def record_success(self) -> None: ...

    def record_failure(self, error: VedetteError) -> float:
        """How long to wait before `pause` is asked."""
        ...

    def unregister(self) -> None:
        """The source is no more."""
        ...


class QuickRetries:
    """Without any memory: waits that double, up to a minute."""

    def __init__(self, chance: Random) -> None:
        self._chance, self._failures = chance, 0

    def seconds_until_allowed(self) -> float:
        return 0.0

    def record_success(self) -> None:
        self._failures = 0

    def record_failure(self, _error: VedetteError) -> float:
        self._failures += 1
        return quick_pause(self._failures, self._chance)

    def unregister(self) -> None:
        pass


class ScannedDocument(NamedTuple):
    """One document that a scan found."""

    collection: str
    key: str
    image: bytes


def chunks(
    items: Iterable[Item], size: int = MAX_APPEND_EVENTS, weigh: Callable[[Item], int] = lambda _: 0
) -> Iterator[list[Item]]:
    """Lists of at most `size` items, each ended by the item with which it weighs CHUNK_BYTES."""
    chunk: list[Item] = []
    weight = 0
    for item in items:
        chunk.append(item)
        weight += weigh(item)
        if len(chunk) >= size or weight >= MAX_APPEND_BYTES:
            yield chunk
            chunk, weight = [], 0
    if chunk:
        yield chunk


def encode_or_quarantine(
    journal: CollectionJournal, source: str, event_id: str, document: object, now_ms: int
) -> bytes | None:
    """The image of a document; one that no document may be goes to the quarantine, and the stream goes on."""
    try:
        return encode_image(document)
    except SourceError as error:
        excerpt = repr(document)[:200]
        journal.quarantine(
            QuarantinedChange(
                source=source, event_id=event_id, reason=error.text, excerpt=excerpt, time_ms=now_ms
            )
        )
        log.warning(
            "A document of source %s was quarantined",
            source,
            extra={"action": "source.quarantine", "source": source},
        )
        return None


def append_scan_diff(
    journal: CollectionJournal,
    source: str,
    documents: Iterable[ScannedDocument],
    collections: Iterable[str],
    now_ms: int,
) -> int:
    """Append the difference between what a scan found and the journal's last images; returns how many changes.

    `collections`: those in which what was not found is gone. To name one of another source does no harm.
    """
    scan_id = f"scan:{journal.last_offset()}"  # never twice: whatever a scan appends moves the offset
    missing = {collection: journal.image_keys(source, collection) for collection in collections}
    changed = 0
    for chunk in chunks(documents, weigh=lambda document: len(document.image)):
        events: list[SourceEvent] = []
        for collection in {document.collection for document in chunk}:
            keys = [document.key for document in chunk if document.collection == collection]
            known = journal.images(source, collection, keys)
            gone = missing.setdefault(collection, set())
            gone.difference_update(keys)
            events.extend(
                _scanned(document, scan_id, document.key not in known, now_ms)
                for document in chunk
                if document.collection == collection and known.get(document.key) != document.image
            )
        changed += journal.append(source, events, None).appended
    for collection, lost in missing.items():
        for some in chunks(sorted(lost)):
            events = [
                SourceEvent(
                    event_id=f"{scan_id}:{collection}:{key}:gone",
                    collection=collection,
                    key=key,
                    after=None,
                    time_ms=now_ms,
                )
                for key in some
            ]
            changed += journal.append(source, events, None).appended
    return changed


def _scanned(document: ScannedDocument, scan_id: str, created: bool, now_ms: int) -> SourceEvent:
    return SourceEvent(
        event_id=f"{scan_id}:{document.collection}:{document.key}",
        collection=document.collection,
        key=document.key,
        after=document.image,
        created=created,
        time_ms=now_ms,
    )


def run_reader(
    reader: SourceReader,
    journal: CollectionJournal,
    source: Source,
    stop: Flag,
    clock: Clock,
    care: SourceHealth,
) -> None:
    """Keep a source read until `stop` is set. Transient errors are retried; what a person must mend is said."""
    buckets = TokenBucket.from_options(source.options, clock)
    settled = False
    while not stop.is_set():
        try:
            pause = POLL_SECONDS if journal.source(source.name).paused else care.seconds_until_allowed()
            if pause:
                stop.wait(pause)
                continue
            events, size = _poll_once(reader, journal, source, settled=settled)
            settled = True
            care.record_success()
            stop.wait(buckets.pause(events, size))
        except VedetteError as error:
            if error.code == "E6103":
                _release(reader, source)
                care.unregister()
                return
            _log_failure(source, error)
            stop.wait(care.record_failure(error))


def _poll_once(
    reader: SourceReader, journal: CollectionJournal, source: Source, *, settled: bool
) -> tuple[int, int]:
    """One look. Whatever is no error of ours is told as one: a reader must not die of a document."""
    try:
        if journal.resume_token(source.name) is None:
            _start(reader, journal, source)
        try:
            if not settled:
                _recover_interrupted_start(journal, source)
            return reader.poll(POLL_SECONDS)
        except SourceError as error:
            if error.code != "E6105":
                raise
            _recover_from_gap(reader, journal, source, error)
            return 0, 0
    except VedetteError:
        raise
    except Exception as problem:
        log.exception(
            "The reader of source %s failed",
            source.name,
            extra={"action": "source.broken", "source": source.name},
        )
        text = f"the reader of {source.name} failed ({type(problem).__name__}: {str(problem)[:300]})"
        raise SourceError("E6104", text, fields={"source": source.name}) from problem


def _recover_interrupted_start(journal: CollectionJournal, source: Source) -> None:
    """What a crash has left half done: a beginning whose last word is missing, or a gap that may not be bridged."""
    reasons = {p.reason for p in journal.partitions(source.name) if p.state != "live"}
    if reasons == {FIRST_SCAN}:
        journal.set_state(source.name, "live")  # the token is the last thing that a beginning writes
    elif reasons:
        raise SourceError(
            "E6105", f"a gap was not bridged before the reader ended ({', '.join(sorted(reasons))})"
        )


def _start(reader: SourceReader, journal: CollectionJournal, source: Source) -> None:
    journal.set_state(source.name, "catching-up", FIRST_SCAN)
    reader.begin(scan=source.options.get("start", "beginning") == "beginning")
    journal.set_state(source.name, "live")


def _recover_from_gap(
    reader: SourceReader, journal: CollectionJournal, source: Source, error: VedetteError
) -> None:
    extra = {"action": "source.stale", "source": source.name, "code": error.code}
    log.error("The position in source %s is lost; it is scanned again: %s", source.name, error, extra=extra)
    journal.set_state(source.name, "stale", error.text)
    resync = source.options.get("on_gap", "scan") == "resync"
    scan = not resync or source.options.get("start", "beginning") == "beginning"
    if scan:
        journal.set_state(source.name, "catching-up", "a scan bridges the gap")
    else:
        journal.delete_images(
            source.name
        )  # they are of before the gap: who begins anew must not begin with them
    reader.begin(scan=scan)
    journal.set_state(source.name, "live", new_epoch=resync)


def _release(reader: SourceReader, source: Source) -> None:
    try:
        reader.forget()
    except VedetteError as error:
        extra = {"action": "source.forget", "source": source.name, "code": error.code}
        log.warning(
            "The resources of removed source %s could not be released: %s", source.name, error, extra=extra
        )


def _log_failure(source: Source, error: VedetteError) -> None:
    extra = {"action": "source.failed", "source": source.name, "code": error.code}
    log.warning("Source %s could not be read and is retried: %s", source.name, error, extra=extra)


def quick_pause(failures: int, chance: Random) -> float:
    """After so many failures in a row."""
    grown = FIRST_PAUSE_SECONDS * 2.0 ** min(failures - 1, 20)
    return min(grown, LONGEST_PAUSE_SECONDS) * (0.9 + 0.2 * chance.random())

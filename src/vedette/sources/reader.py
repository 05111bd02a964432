"""The interface of a source reader, and the loop that runs one.

    begin    choose a start: a scan of everything and then the stream, or the stream from now on
    poll     append new changes; the append comes before the acknowledgement to the source

If a source no longer has the changes after our position (E6105), its partitions become *stale*: nothing is delivered
until a scan has been compared with the journal's last images and the difference appended. Subscribers that follow a
state lose nothing: the changes in between arrive as one change. With `on_gap: resync` the epoch changes too, and
clients receive a resync. A source that was not scanned at the start (`start: now`) is not scanned now either, and the
last images are deleted.
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
"""Maximum number of events of one append."""
MAX_APPEND_BYTES = 16 * 1024 * 1024
"""Maximum bytes of images of one append; the append ends with the event that exceeds it."""
POLL_SECONDS = 0.5
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 60.0


class SourceReader(Protocol):
    """Reads one source. Raises E6104 (retryable), E6105 (position lost) or E6106 (needs an operator)."""

    def begin(self, *, scan: bool) -> None:
        """Start with a scan of everything, or from now on."""
        ...

    def poll(self, seconds: float) -> tuple[int, int]:
        """Append new changes, waiting up to the given seconds for the first. Returns the number of events and bytes."""
        ...

    def forget(self) -> None:
        """The source was removed: release what the server keeps for this reader."""
        ...

    def close(self) -> None: ...


class SourceHealth(Protocol):
    """Health of a source, and when it may be read (`vedette.handshake.tables.source_health`)."""

    def seconds_until_allowed(self) -> float:
        """Seconds to wait before asking again; 0 if the source may be read now."""
        ...

    def record_success(self) -> None: ...

    def record_failure(self, error: VedetteError) -> float:
        """Record a failure. Returns the seconds to wait."""
        ...

    def unregister(self) -> None:
        """The source was removed."""
        ...


class QuickRetries:
    """Keeps nothing on disk: delays double up to one minute."""

    def __init__(self, rng: Random) -> None:
        self._rng, self._failures = rng, 0

    def seconds_until_allowed(self) -> float:
        return 0.0

    def record_success(self) -> None:
        self._failures = 0

    def record_failure(self, _error: VedetteError) -> float:
        self._failures += 1
        return quick_pause(self._failures, self._rng)

    def unregister(self) -> None:
        pass


class ScannedDocument(NamedTuple):
    """One document found by a scan."""

    collection: str
    key: str
    image: bytes


def chunks(
    items: Iterable[Item], size: int = MAX_APPEND_EVENTS, weigh: Callable[[Item], int] = lambda _: 0
) -> Iterator[list[Item]]:
    """Lists of at most `size` items; an item that brings the list to MAX_APPEND_BYTES ends it."""
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
    """Encode a document. An invalid document is quarantined, and the stream continues."""
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
    """Append the difference between a scan and the journal's last images. Returns the number of changes.

    `collections` are those in which documents that were not found count as deleted. Naming a collection of another
    source has no effect.
    """
    scan_id = f"scan:{journal.last_offset()}"  # unique: every append of a scan advances the offset
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
    """Read a source until `stop` is set. Transient errors are retried; other errors are reported to the operator."""
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
    """Poll once. An unexpected exception is reported as a source error: one document must not end the reader."""
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
    """Finish what a crash interrupted: an incomplete start, or a gap that must not be bridged."""
    reasons = {p.reason for p in journal.partitions(source.name) if p.state != "live"}
    if reasons == {FIRST_SCAN}:
        journal.set_state(source.name, "live")  # the token is the last write of a start
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
        journal.delete_images(source.name)  # images from before the gap must not be part of a new snapshot
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


def quick_pause(failures: int, rng: Random) -> float:
    """Delay after this number of consecutive failures."""
    grown = FIRST_PAUSE_SECONDS * 2.0 ** min(failures - 1, 20)
    return min(grown, LONGEST_PAUSE_SECONDS) * (0.9 + 0.2 * rng.random())

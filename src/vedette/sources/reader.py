"""The interface of a source reader, and what readers share: scans, chunks, quarantine and backoff.

`reader_loop.py` runs a reader. The usual mistake in a reader: acknowledging changes to the source before `append` has
returned. A crash between the two would lose them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import NamedTuple, Protocol, TypeVar

from vedette.errors import SourceError, VedetteError
from vedette.sources.images import encode_image
from vedette.sources.journal.seam import CollectionJournal
from vedette.sources.records import QuarantinedChange, SourceEvent

__all__ = [
    "ExponentialBackoff",
    "ScannedDocument",
    "SourceHealth",
    "SourceReader",
    "append_scan_diff",
    "backoff_seconds",
    "chunks",
    "encode_or_quarantine",
]

log = logging.getLogger(__name__)
Item = TypeVar("Item")

MAX_APPEND_EVENTS = 1_000
"""Maximum number of events of one append."""
MAX_APPEND_BYTES = 16 * 1024 * 1024
"""Maximum bytes of images of one append; the append ends with the event that exceeds it."""
FIRST_RETRY_SECONDS = 0.2
MAX_RETRY_SECONDS = 60.0


class SourceReader(Protocol):
    """Reads one source. Raises E6104 (retryable), E6105 (position lost) or E6106 (needs an operator)."""

    def start(self, *, scan: bool) -> None:
        """Scan everything and then follow the stream, or follow the stream from now on."""
        ...

    def poll(self, seconds: float) -> tuple[int, int]:
        """Append new changes and wait up to `seconds` for the first. Returns the number of events and their bytes."""
        ...

    def release_server_resources(self) -> None:
        """Release what the server keeps for this reader, such as a replication slot. The source was removed."""
        ...

    def close(self) -> None: ...


class SourceHealth(Protocol):
    """Health of a source, and when it may be read (`vedette.handshake.tables.source_health`)."""

    def seconds_until_allowed(self) -> float:
        """Seconds to wait before asking again; 0 if the source may be read now."""
        ...

    def record_success(self) -> None: ...

    def record_failure(self, error: VedetteError) -> float:
        """Record a failure. Returns the seconds to wait before the next attempt."""
        ...

    def unregister(self) -> None:
        """Delete the record of a source that was removed."""
        ...


class ExponentialBackoff:
    """Source health in memory: each failure doubles the delay, up to one minute. Implements `SourceHealth`."""

    def __init__(self, rng: Random) -> None:
        self._rng, self._failures = rng, 0

    def seconds_until_allowed(self) -> float:
        return 0.0

    def record_success(self) -> None:
        self._failures = 0

    def record_failure(self, _error: VedetteError) -> float:
        self._failures += 1
        return backoff_seconds(self._failures, self._rng)

    def unregister(self) -> None:
        pass


class ScannedDocument(NamedTuple):
    """One document found by a scan."""

    collection: str
    key: str
    image: bytes


def chunks(
    items: Iterable[Item], max_items: int = MAX_APPEND_EVENTS, size_of: Callable[[Item], int] = lambda _: 0
) -> Iterator[list[Item]]:
    """Yield lists of at most `max_items` items. The item that brings a list to MAX_APPEND_BYTES is its last."""
    chunk: list[Item] = []
    total_bytes = 0
    for item in items:
        chunk.append(item)
        total_bytes += size_of(item)
        if len(chunk) >= max_items or total_bytes >= MAX_APPEND_BYTES:
            yield chunk
            chunk, total_bytes = [], 0
    if chunk:
        yield chunk


def encode_or_quarantine(
    journal: CollectionJournal, source: str, event_id: str, document: object, now_ms: int
) -> bytes | None:
    """Encode a document. An invalid document is quarantined, and None is returned."""
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

    A document of one of `collections` that the scan did not find is deleted. A collection of another source has no
    effect.
    """
    scan_id = f"scan:{journal.last_offset()}"  # unique: every append of a scan advances the offset
    missing = {collection: journal.image_keys(source, collection) for collection in collections}
    changed = 0
    for chunk in chunks(documents, size_of=lambda document: len(document.image)):
        events: list[SourceEvent] = []
        for collection in {document.collection for document in chunk}:
            keys = [document.key for document in chunk if document.collection == collection]
            known = journal.images(source, collection, keys)
            missing.setdefault(collection, set()).difference_update(keys)
            events.extend(
                _scan_event(document, scan_id, document.key not in known, now_ms)
                for document in chunk
                if document.collection == collection and known.get(document.key) != document.image
            )
        changed += journal.append(source, events, None).appended
    for collection, missing_keys in missing.items():
        for some in chunks(sorted(missing_keys)):
            events = [
                SourceEvent(
                    event_id=f"{scan_id}:{collection}:{key}:deleted",
                    collection=collection,
                    key=key,
                    after=None,
                    time_ms=now_ms,
                )
                for key in some
            ]
            changed += journal.append(source, events, None).appended
    return changed


def _scan_event(document: ScannedDocument, scan_id: str, created: bool, now_ms: int) -> SourceEvent:
    return SourceEvent(
        event_id=f"{scan_id}:{document.collection}:{document.key}",
        collection=document.collection,
        key=document.key,
        after=document.image,
        created=created,
        time_ms=now_ms,
    )


def backoff_seconds(failures: int, rng: Random) -> float:
    """Return the delay after this number of consecutive failures: doubled each time, with 10 % jitter."""
    seconds = FIRST_RETRY_SECONDS * 2.0 ** min(failures - 1, 20)
    return min(seconds, MAX_RETRY_SECONDS) * (0.9 + 0.2 * rng.random())

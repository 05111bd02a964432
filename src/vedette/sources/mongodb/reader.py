"""Read collections of a MongoDB database: a scan, then one change stream per collection.

Theory of operation. A stream starts at the server time before the scan, so no change falls between the two. Events
from before the end of the scan may be older than the scanned documents; for those the reader reads the document
again, so that no document goes back in time. The position of every stream is one token, appended together with the
events that led there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event as Flag
from typing import Any

import bson
import pymongo
from pymongo import errors
from pymongo.collection import Collection
from pymongo.synchronous.change_stream import CollectionChangeStream

from vedette.clock import Clock
from vedette.errors import SourceError
from vedette.sources.journal.seam import CollectionJournal
from vedette.sources.mongodb.change_events import (
    MongoChange,
    document_key,
    parse_change_event,
    parse_resume_after,
    to_document_value,
)
from vedette.sources.reader import (
    MAX_APPEND_BYTES,
    MAX_APPEND_EVENTS,
    ScannedDocument,
    append_scan_diff,
    encode_or_quarantine,
)
from vedette.sources.records import Source, SourceEvent
from vedette.values import timestamp_to_ms

__all__ = ["MongodbReader"]

RESUME_LOST_CODES = frozenset({136, 260, 280, 286, 10334})
"""CappedPositionLost, InvalidResumeToken, ChangeStreamFatalError, ChangeStreamHistoryLost, and BSONObjectTooLarge: an
event over 16 MB, which no stream can pass."""
FATAL_CODES = frozenset({13, 18, 40573, 40324})
"""Unauthorized, AuthenticationFailed, not a replica set."""
NEW_COLLECTIONS_SECONDS = 10.0
"""Seconds between two checks for new collections."""
POSITION_SAVE_SECONDS = 10.0
"""Seconds between two stored positions of idle streams. An old position may fall out of the server's oplog."""
IDLE_SECONDS = 0.05
"""Seconds between polls of idle streams."""
_SERVER_SECONDS = 10
"""Seconds to wait for a server."""
TOKEN_VERSION = 2
"""Version of the resume token. After an update the source is scanned again."""


def encode_token(positions: dict[str, Any]) -> str:
    """Return the resume token of a source: per collection the cluster times of start and end of its scan, as
    [seconds, increment], and the resume token of its stream if there is one."""
    return json.dumps({"version": TOKEN_VERSION, "collections": positions})


def decode_token(token: str | None) -> dict[str, Any]:
    """Return the positions by collection; none for a missing token. Raises E6105 for a token of another version."""
    if token is None:
        return {}
    stored = json.loads(token)
    if stored.get("version") != TOKEN_VERSION:
        raise SourceError("E6105", f"the resume token has another version than {TOKEN_VERSION}")
    positions: dict[str, Any] = stored["collections"]
    return positions


class MongodbReader:
    """Reads one database.

    Options: `database` (or in the address), `collections` (comma-separated; default all), `pre_images: true` to request
    before images from the server, `resume_after` to start after events that another system has already processed.
    """

    def __init__(self, source: Source, journal: CollectionJournal, clock: Clock) -> None:
        self._source, self._journal, self._clock = source, journal, clock
        self._chosen = [c.strip() for c in source.options.get("collections", "").split(",") if c.strip()]
        self._tokens = parse_resume_after(source.options.get("resume_after", ""))
        self._streams: dict[str, CollectionChangeStream[Any]] = {}
        self._positions: dict[str, Any] = {}
        self._next_collection_check = self._next_position_save = 0.0
        self._pause = Flag()
        with _translate_errors():
            self._client: pymongo.MongoClient[Any] = pymongo.MongoClient(
                source.address,
                serverSelectionTimeoutMS=_SERVER_SECONDS * 1000,
                tz_aware=True,
                datetime_conversion="DATETIME_AUTO",  # a date after the year 9999 must not stop the stream
                unicode_decode_error_handler="replace",  # nor may an invalid string
                appname="vedette",
            )
            name = source.options.get("database")
            try:
                self._database = self._client[name] if name else self._client.get_default_database()
            except errors.ConfigurationError:
                self._client.close()
                text = "no database is given: add it to the address, or set the option database"
                raise SourceError("E6101", text, fields={"source": source.name}) from None

    def close(self) -> None:
        self._close_streams()
        self._client.close()

    def release_server_resources(self) -> None:
        """No-op: MongoDB keeps no state for readers of change streams."""

    # --- start --------------------------------------------------------------------------------------

    def start(self, *, scan: bool) -> None:
        self._close_streams()
        with _translate_errors():
            names = self._names()
            known = self._tokens if self._journal.resume_token(self._source.name) is None else {}
            self._positions = {
                name: self._position_from_token(known[name])
                if name in known
                else self._start_collection(name, scan=scan)
                for name in names
            }
            if scan:
                self._delete_other_collections(set(names))
        self._journal.append(self._source.name, [], encode_token(self._positions))

    def _delete_other_collections(self, names: set[str]) -> None:
        """Delete the documents of collections that no longer exist or are no longer selected."""
        gone = set(self._journal.collections(self._source.tenant)) - set(map(self._collection, names))
        append_scan_diff(self._journal, self._source.name, (), gone, self._now_ms())

    def _names(self) -> list[str]:
        """Return the collections to read. Views and time series have no change streams and are left out."""
        if self._chosen:
            return sorted(self._chosen)
        found = self._database.list_collections(nameOnly=True, authorizedCollections=True)
        names = (each["name"] for each in found if each.get("type", "collection") == "collection")
        return sorted(name for name in names if not name.startswith("system."))

    def _start_collection(self, name: str, *, scan: bool) -> dict[str, Any]:
        start = self._server_time()
        if scan:
            documents = self._documents(name)
            append_scan_diff(
                self._journal, self._source.name, documents, [self._collection(name)], self._now_ms()
            )
        end = self._server_time()
        return {"start": [start.time, start.inc], "scanned": [end.time, end.inc] if scan else [0, 0]}

    def _position_from_token(self, token: dict[str, Any]) -> dict[str, Any]:
        now = self._server_time()
        return {"start": [now.time, now.inc], "scanned": [0, 0], "token": token}

    def _server_time(self) -> bson.Timestamp:
        """Return the operation time of the server, or the local time if the server does not report it."""
        reported = self._client.admin.command("ping").get("operationTime")
        return reported or bson.Timestamp(self._now_ms() // 1000, 0)

    def _documents(self, name: str) -> Iterator[ScannedDocument]:
        collection = self._collection(name)
        for raw in self._database[name].find(batch_size=MAX_APPEND_EVENTS):
            key = document_key(raw["_id"])
            image = encode_or_quarantine(
                self._journal,
                self._source.name,
                f"scan:{collection}:{key}",
                to_document_value(raw),
                self._now_ms(),
            )
            if image is not None:
                yield ScannedDocument(collection, key, image)

    # --- the stream -----------------------------------------------------------------------------------------

    def poll(self, seconds: float) -> tuple[int, int]:
        try:
            with _translate_errors():
                self._open_streams()
                events = self._read_streams()
            appended = self._append(events)
        except BaseException:
            self._close_streams()  # events that were read but not appended are requested again
            raise
        if not events and seconds:
            self._pause.wait(min(seconds, IDLE_SECONDS))
        return appended, _image_bytes(events)

    def _read_streams(self) -> list[SourceEvent]:
        """Read each stream once, up to MAX_APPEND_BYTES in total. A stream that was read is the last one next time."""
        events: list[SourceEvent] = []
        for name, stream in list(self._streams.items()):
            if _image_bytes(events) >= MAX_APPEND_BYTES:
                break
            self._streams[name] = self._streams.pop(name)
            for event in self._read_stream(name, stream, events):
                events.append(event)  # noqa: PERF402 - a drop needs the events before it
        return events

    def _append(self, events: list[SourceEvent]) -> int:
        now = self._clock.monotonic()
        if not events and now < self._next_position_save:
            return 0
        self._next_position_save = now + POSITION_SAVE_SECONDS
        appended, token = 0, encode_token(self._positions)
        for start in range(0, len(events) or 1, MAX_APPEND_EVENTS):
            last = start + MAX_APPEND_EVENTS >= len(events)
            chunk = events[start : start + MAX_APPEND_EVENTS]
            appended += self._journal.append(self._source.name, chunk, token if last else None).appended
        return appended

    def _open_streams(self) -> None:
        if not self._positions:
            self._positions = decode_token(self._journal.resume_token(self._source.name))
        now = self._clock.monotonic()
        if now >= self._next_collection_check:
            self._next_collection_check = now + NEW_COLLECTIONS_SECONDS
            names = self._names()
            for name in names:
                if name not in self._positions:
                    self._positions[name] = self._start_collection(name, scan=True)
            if not self._streams:
                # A previous reader may have been killed between a scan and storing the position.
                self._delete_other_collections({*names, *self._positions})
        for name in self._positions:
            if name not in self._streams:
                self._streams[name] = self._open_stream(self._database[name], self._positions[name])

    def _open_stream(
        self, collection: Collection[Any], position: dict[str, Any]
    ) -> CollectionChangeStream[Any]:
        where: dict[str, Any] = {"start_at_operation_time": bson.Timestamp(*position["start"])}
        if "token" in position:
            where = {"resume_after": position["token"]}
        before = "whenAvailable" if self._source.options.get("pre_images") == "true" else None
        return collection.watch(
            full_document="updateLookup",
            full_document_before_change=before,
            max_await_time_ms=50,
            batch_size=MAX_APPEND_EVENTS,
            **where,
        )

    def _read_stream(
        self, name: str, stream: CollectionChangeStream[Any], before: Sequence[SourceEvent]
    ) -> Iterator[SourceEvent]:
        """Read up to MAX_APPEND_EVENTS of one stream and update its position. `before` are the events read so far."""
        size = 0
        for _ in range(MAX_APPEND_EVENTS):
            event = stream.try_next() if size < MAX_APPEND_BYTES else None
            if event is None:
                break
            change = parse_change_event(event)
            if change is not None and change.op == "drop":
                yield from self._drop_collection(name, change, before)
                return
            scanned = bson.Timestamp(*self._positions[name]["scanned"])
            self._positions[name] = {**self._positions[name], "token": event["_id"]}
            if change is not None:
                overlaps = event["clusterTime"] <= scanned if "clusterTime" in event else False
                for found in self._events(name, change, overlaps=overlaps):
                    size += len(found.after or b"")
                    yield found
        token = stream.resume_token
        if token is not None:
            self._positions[name] = {**self._positions[name], "token": token}

    def _events(self, name: str, change: MongoChange, *, overlaps: bool) -> Iterator[SourceEvent]:
        after = change.after
        if overlaps:
            now = self._database[name].find_one({"_id": change.raw_key})
            after = to_document_value(now) if now is not None else None
        elif change.op == "update" and after is None:
            return  # deleted since; the deletion follows in the stream
        image = None
        if after is not None:
            image = encode_or_quarantine(
                self._journal, self._source.name, change.event_id, after, self._now_ms()
            )
            if image is None:
                return
        collection = self._collection(name)
        if (
            overlaps
            and self._journal.images(self._source.name, collection, [change.key]).get(change.key) == image
        ):
            return  # the scan has appended it
        yield self._event(collection, change.key, change, change.event_id, image)

    def _drop_collection(
        self, name: str, change: MongoChange, before: Sequence[SourceEvent]
    ) -> Iterator[SourceEvent]:
        """Yield the deletions of all documents of a dropped or renamed collection.

        A new collection of the same name is scanned later, because a rename appears in no stream.
        """
        self._streams.pop(name).close()
        self._positions.pop(name)
        self._next_collection_check = 0.0
        collection = self._collection(name)
        keys = self._journal.image_keys(self._source.name, collection)
        for event in before:
            if event.collection == collection:
                (keys.discard if event.after is None else keys.add)(event.key)
        for key in sorted(keys):
            yield self._event(collection, key, change, f"{change.event_id}:{key}", None)

    def _event(
        self, collection: str, key: str, change: MongoChange, event_id: str, image: bytes | None
    ) -> SourceEvent:
        before = None
        if change.before is not None:
            before = encode_or_quarantine(
                self._journal, self._source.name, event_id, change.before, self._now_ms()
            )
        return SourceEvent(
            event_id=f"{collection}:{event_id}",
            collection=collection,
            key=key,
            before=before,
            after=image,
            created=change.op == "create",
            time_ms=change.time_ms,
            transaction=change.transaction,
        )

    def _close_streams(self) -> None:
        """Close the streams and drop their positions; the journal has the stored ones."""
        for stream in self._streams.values():
            with suppress(errors.PyMongoError):
                stream.close()
        self._streams, self._positions = {}, {}
        self._next_collection_check = 0.0

    def _collection(self, name: str) -> str:
        return f"{self._source.name}::{name}"

    def _now_ms(self) -> int:
        return timestamp_to_ms(self._clock.now())


def _image_bytes(events: list[SourceEvent]) -> int:
    return sum(len(event.after or b"") for event in events)


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Translate server errors: E6104 is retryable, E6105 means the position is lost, E6106 needs an operator."""
    try:
        yield
    except errors.OperationFailure as problem:
        code = (
            "E6105"
            if problem.code in RESUME_LOST_CODES
            else "E6106"
            if problem.code in FATAL_CODES
            else "E6104"
        )
        text = f"MongoDB rejected the request ({problem.code}: {str(problem)[:300]})"
        raise SourceError(code, text, fields={"mongodb": problem.code}) from problem
    except errors.ConfigurationError as problem:
        raise SourceError("E6106", f"MongoDB cannot be used ({str(problem)[:300]})") from problem
    except errors.PyMongoError as problem:
        raise SourceError("E6104", f"MongoDB does not answer ({str(problem)[:300]})") from problem

"""The graph's own change log as a source: for gateways that run without an engine (design §1).

The engine numbers its changes already; they are read from its store by offset, beside the engine and without a lock,
and appended to the collection journal like those of any other source. A node type is a collection of that name.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event as Flag

from vedette.clock import Clock
from vedette.errors import SourceError
from vedette.sources.journal import CollectionJournal
from vedette.sources.reader import CHUNK, Document, append_scan
from vedette.sources.records import Source, SourceEvent
from vedette.storage.names import encode_name
from vedette.values import timestamp_to_ms

__all__ = ["GraphLogReader"]

_READ = """SELECT "offset", collection, key, CAST(before AS BLOB), CAST(after AS BLOB), time_ms, "transaction"
    FROM journal WHERE "offset" > ? ORDER BY "offset" LIMIT ?"""
_FACT = "SELECT CAST(value AS INTEGER) FROM meta WHERE key = ?"
_ELEMENTS = "SELECT id, type, CAST(attributes AS BLOB) FROM elements WHERE targets IS NULL"


class GraphLogReader:
    """The address of the source is a data directory, whose database the tenant names, or the file of a database."""

    def __init__(self, source: Source, journal: CollectionJournal, clock: Clock) -> None:
        self._source, self._journal, self._clock = source, journal, clock
        self._pause = Flag()
        path = Path(source.address)
        if path.is_dir():
            path = path / "databases" / f"{encode_name(source.tenant)}.sqlite"
        if not path.is_file():
            raise SourceError("E6104", f"there is no graph at {path}", fields={"source": source.name})
        self._db = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, check_same_thread=False
        )
        self._db.execute("PRAGMA query_only = ON")

    def close(self) -> None:
        self._db.close()

    def begin(self, *, scan: bool) -> None:
        with self._reading():
            self._db.execute("BEGIN")
            try:
                (last,) = self._db.execute('SELECT coalesce(max("offset"), 0) FROM journal').fetchone()
                epoch = self._fact("store.epoch")
                if scan:
                    rows = self._db.execute(_ELEMENTS)
                    documents = (_document(id, type_, data) for id, type_, data in rows)
                    append_scan(self._journal, self._source.name, documents, [], self._now())
            finally:
                self._db.execute("COMMIT")
        self._journal.append(self._source.name, [], f"{epoch}:{last}")

    def poll(self, seconds: float) -> tuple[int, int]:
        epoch, _, last = (self._journal.token(self._source.name) or "0:0").partition(":")
        with self._reading():
            rows = self._db.execute(_READ, (int(last), CHUNK)).fetchall()
            if int(epoch) != self._fact("store.epoch") or int(last) + 1 < self._fact("store.first"):
                raise SourceError("E6105", "the graph's log no longer reaches back to our place")
        if not rows:
            self._pause.wait(min(seconds, 0.02))
            return 0, 0
        events = [
            SourceEvent(
                event_id=f"{epoch}:{offset}",
                collection=collection,
                key=key,
                before=before,
                after=after,
                created=before is None,
                time_ms=time_ms,
                transaction=transaction,
            )
            for offset, collection, key, before, after, time_ms, transaction in rows
        ]
        done = self._journal.append(self._source.name, events, f"{epoch}:{rows[-1][0]}")
        return done.appended, sum(len(event.after or b"") for event in events)

    def _fact(self, name: str) -> int:
        row = self._db.execute(_FACT, (name,)).fetchone()
        return int(row[0]) if row is not None else 0

    def _now(self) -> int:
        return timestamp_to_ms(self._clock.now())

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as problem:
            text = f"the graph at {self._source.address} cannot be read ({problem})"
            raise SourceError("E6104", text, fields={"source": self._source.name}) from problem


def _document(id: str, type_: str, attributes: bytes) -> Document:
    from vedette.sources.images import decode_image, encode_image

    return Document(type_, id, encode_image({"id": id, "_type": type_, **decode_image(attributes)}))

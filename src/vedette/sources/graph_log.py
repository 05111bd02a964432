"""The graph's own change log as a source: for gateways that run without an engine (design §1).

The engine numbers its changes already; they are read from its store by offset, beside the engine and without a lock,
and appended to the collection journal like those of any other source. A node type is a collection of that name.

The engine's images leave to the ontology what a text is (a Timestamp, say); in the collection journal every image
speaks for itself, so they are rewritten on the way.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from threading import Event as Flag
from typing import Any

from vedette.clock import Clock
from vedette.engine.codec import ElementCodec
from vedette.errors import SourceError
from vedette.language.layer0 import layer0_schema
from vedette.language.parser import parse_declarations
from vedette.language.schema import Schema
from vedette.language.schema_build import extend_schema
from vedette.sources.images import encode_image
from vedette.sources.journal import CollectionJournal
from vedette.sources.reader import CHUNK, Document, append_scan
from vedette.sources.records import Source, SourceEvent
from vedette.storage.names import encode_name
from vedette.storage.pending import decode_pending, rows_of
from vedette.values import timestamp_to_ms

__all__ = ["GraphLogReader"]

_READ = """SELECT "offset", collection, key, CAST(before AS BLOB), CAST(after AS BLOB), time_ms, "transaction"
    FROM journal WHERE "offset" > ? ORDER BY "offset" LIMIT ?"""
_KEPT = "SELECT batch FROM pending ORDER BY number"
_FACT = "SELECT CAST(value AS INTEGER) FROM meta WHERE key = ?"
_DEFINITIONS = "SELECT text FROM definitions ORDER BY position"
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

    def forget(self) -> None:
        """The graph's log keeps nothing for its readers."""

    @property
    def epoch(self) -> int:
        """Of the graph's log: offsets of another one mean nothing."""
        with self._reading():
            return self._fact("store.epoch")

    def begin(self, *, scan: bool) -> None:
        with self._reading():
            (last,) = self._db.execute('SELECT coalesce(max("offset"), 0) FROM journal').fetchone()
            epoch = self._fact("store.epoch")
            if scan:
                images = _Images(self._db)
                rows = self._db.execute(_ELEMENTS).fetchall()
                documents = (Document(type_, id, images.of(type_, id, data)) for id, type_, data in rows)
                known = self._journal.collections(self._source.tenant)
                append_scan(self._journal, self._source.name, documents, known, self._now())
        self._journal.append(self._source.name, [], f"{epoch}:{last}")

    def poll(self, seconds: float) -> tuple[int, int]:
        epoch, _, last = (self._journal.token(self._source.name) or "0:0").partition(":")
        with self._reading():
            rows = self._rows(int(last))
            if int(epoch) != self._fact("store.epoch") or int(last) + 1 < self._fact("store.first"):
                raise SourceError("E6105", "the graph's log no longer reaches back to our place")
            images = _Images(self._db) if rows else None
        if images is None:
            self._pause.wait(min(seconds, 0.02))
            return 0, 0
        events = [
            SourceEvent(
                event_id=f"{epoch}:{offset}",
                collection=collection,
                key=key,
                before=images.of(collection, key, before) if before is not None else None,
                after=images.of(collection, key, after) if after is not None else None,
                created=before is None,
                time_ms=time_ms,
                transaction=transaction,
            )
            for offset, collection, key, before, after, time_ms, transaction in rows
        ]
        done = self._journal.append(self._source.name, events, f"{epoch}:{rows[-1][0]}")
        return done.appended, sum(len(event.after or b"") for event in events)

    def _rows(self, after: int) -> list[tuple[Any, ...]]:
        """From the log, then from what is durable but not yet entered there (`storage/pending.py`)."""
        rows = self._db.execute(_READ, (after, CHUNK)).fetchall()
        if len(rows) < CHUNK:
            last = rows[-1][0] if rows else after
            kept = rows_of([decode_pending(batch) for (batch,) in self._db.execute(_KEPT)])
            later = [
                (row.offset, row.collection, row.key, row.before, row.after, row.time_ms, row.transaction)
                for row in kept
                if row.offset > last
            ]
            rows += later[: CHUNK - len(rows)]
        return rows

    def _fact(self, name: str) -> int:
        row = self._db.execute(_FACT, (name,)).fetchone()
        return int(row[0]) if row is not None else 0

    def _now(self) -> int:
        return timestamp_to_ms(self._clock.now())

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """All that is read is of one moment."""
        try:
            self._db.execute("BEGIN")
            try:
                yield
            finally:
                self._db.execute("COMMIT")
        except sqlite3.Error as problem:
            text = f"the graph at {self._source.address} cannot be read ({problem})"
            raise SourceError("E6104", text, fields={"source": self._source.name}) from problem


class _Images:
    """Rewrites images by the ontology that the store has now; layouts only grow, so it knows older images, too."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._schema = _schema(tuple(text for (text,) in db.execute(_DEFINITIONS)))
        self._codec = ElementCodec(self._schema)

    def of(self, type_: str, id: str, image: bytes) -> bytes:
        element = self._codec.from_image(type_, id, image)
        holder = self._schema.nodes.get(type_) or self._schema.edges[type_]
        fields = {"id": id, "_type": type_, **dict(zip(holder.layout, element.values, strict=True))}
        if element.targets is not None:
            fields["_targets"] = list(element.targets)
        return encode_image(fields)


@lru_cache(maxsize=16)
def _schema(definitions: tuple[str, ...]) -> Schema:
    schema = layer0_schema()
    for text in definitions:
        schema = extend_schema(schema, parse_declarations(text), text)
    return schema

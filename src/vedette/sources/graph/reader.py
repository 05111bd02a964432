"""The graph's own change log as a source, for gateways that run without an engine.

The engine numbers its changes. The reader reads them from the store by offset, beside the engine and without a lock,
and appends them to the collection journal like those of any other source. A node type is a collection of the same
name.

Images of the engine depend on the ontology (for example to know a Timestamp). Images in the collection journal are
self-describing, so the reader converts them.
"""

from __future__ import annotations

import json
from functools import lru_cache
from threading import Event as Flag

from vedette.clock import Clock
from vedette.errors import SourceError
from vedette.language.parser import parse_declarations
from vedette.language.schema.extend import extend_schema
from vedette.language.schema.layer0 import layer0_schema
from vedette.language.schema.model import Schema
from vedette.sources.graph.log import open_graph_log
from vedette.sources.images import encode_image
from vedette.sources.journal.seam import CollectionJournal
from vedette.sources.reader import MAX_APPEND_EVENTS, ScannedDocument, append_scan_diff
from vedette.sources.records import Source, SourceEvent
from vedette.storage.element_codec import ElementCodec
from vedette.values import timestamp_to_ms

__all__ = ["GraphLogReader", "encode_token"]

TOKEN_VERSION = 2
"""Version of the resume token. The reader ignores a token of another version, and the graph is scanned again."""


class GraphLogReader:
    """Reads one graph. The address is a data directory, whose database the tenant selects, or a database file."""

    def __init__(self, source: Source, journal: CollectionJournal, clock: Clock) -> None:
        self._source, self._journal, self._clock = source, journal, clock
        self._pause = Flag()
        self._graph = open_graph_log(source.address, source.tenant)

    def close(self) -> None:
        self._graph.close()

    def release_server_resources(self) -> None:
        """No-op: the graph's log keeps no state per reader."""

    @property
    def epoch(self) -> int:
        """Epoch of the graph's log. Offsets of different epochs are unrelated."""
        with self._graph.snapshot():
            return self._graph.counter("store.epoch")

    def start(self, *, scan: bool) -> None:
        with self._graph.snapshot():
            last, epoch = self._graph.last_offset(), self._graph.counter("store.epoch")
            if scan:
                images = _ImageTranscoder(self._graph.definitions())
                documents = (
                    ScannedDocument(type_, id, images.transcode(type_, id, data))
                    for id, type_, data in self._graph.nodes()
                )
                known = self._journal.collections(self._source.tenant)
                append_scan_diff(self._journal, self._source.name, documents, known, self._now_ms())
        self._journal.append(self._source.name, [], encode_token(epoch, last))

    def poll(self, seconds: float) -> tuple[int, int]:
        epoch, last = decode_token(self._journal.resume_token(self._source.name))
        with self._graph.snapshot():
            rows = self._graph.rows(last, MAX_APPEND_EVENTS)
            first = self._graph.counter("store.first")
            if epoch != self._graph.counter("store.epoch") or last + 1 < first:
                raise SourceError("E6105", f"the graph's log no longer has the changes after offset {last}")
            images = _ImageTranscoder(self._graph.definitions()) if rows else None
        if images is None:
            self._pause.wait(min(seconds, 0.02))
            return 0, 0
        events = [
            SourceEvent(
                event_id=f"{epoch}:{row.offset}",
                collection=row.collection,
                key=row.key,
                before=images.transcode(row.collection, row.key, row.before)
                if row.before is not None
                else None,
                after=images.transcode(row.collection, row.key, row.after) if row.after is not None else None,
                created=row.before is None,
                time_ms=row.time_ms,
                transaction=row.transaction,
            )
            for row in rows
        ]
        result = self._journal.append(self._source.name, events, encode_token(epoch, rows[-1].offset))
        return result.appended, sum(len(event.after or b"") for event in events)

    def _now_ms(self) -> int:
        return timestamp_to_ms(self._clock.now())


def encode_token(epoch: int, offset: int) -> str:
    """Return the resume token: the epoch of the graph's log and the last offset that is in the journal."""
    return json.dumps({"version": TOKEN_VERSION, "epoch": epoch, "offset": offset})


def decode_token(token: str | None) -> tuple[int, int]:
    """Return epoch and offset; (0, 0), which no log has, for a missing token and for one of another version."""
    stored = json.loads(token) if token is not None and token.startswith("{") else {}
    if stored.get("version") != TOKEN_VERSION:
        return 0, 0
    return stored["epoch"], stored["offset"]


class _ImageTranscoder:
    """Converts images of the engine with the current ontology. Layouts only grow, so it also decodes older images."""

    def __init__(self, definitions: tuple[str, ...]) -> None:
        self._schema = _schema(definitions)
        self._codec = ElementCodec(self._schema)

    def transcode(self, type_: str, id: str, image: bytes) -> bytes:
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

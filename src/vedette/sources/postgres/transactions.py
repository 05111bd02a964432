"""Convert the messages of a slot, transaction by transaction, into document changes in the journal.

A large transaction is appended in pieces. The position of each piece has the number of messages it covers, and those
are skipped after a crash. So the last images are always those before the current message: TRUNCATE deletes exactly the
rows that existed, and a large value that the server did not send keeps its previous value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from vedette.errors import SourceError
from vedette.sources.images import decode_image, encode_image
from vedette.sources.journal.seam import CollectionJournal
from vedette.sources.postgres.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Deleted,
    Inserted,
    Relation,
    Truncated,
    Updated,
    read_message,
)
from vedette.sources.postgres.position import SlotPosition, WatchedTable
from vedette.sources.postgres.values import TextDecoder, key_text
from vedette.sources.reader import MAX_APPEND_BYTES, MAX_APPEND_EVENTS, encode_or_quarantine
from vedette.sources.records import Source, SourceEvent

__all__ = ["FetchColumns", "TableChanged", "TransactionAssembler", "collection_of"]

_EPOCH_MS = 946_684_800_000
"""2000-01-01 in milliseconds: the epoch of PostgreSQL timestamps."""
_RowMessage: TypeAlias = Inserted | Updated | Deleted
FetchColumns: TypeAlias = "Callable[[WatchedTable, dict[str, Any], list[str]], dict[str, Any]]"
"""Reads the current values of some columns of the row with this key."""


class TableChanged(Exception):
    """Rows belong to an unknown table, or to one whose name or key changed since its scan."""

    def __init__(self, oid: int) -> None:
        self.oid = oid


def collection_of(source: str, schema: str, table: str) -> str:
    return f"{source}::{table}" if schema == "public" else f"{source}::{schema}.{table}"


class TransactionAssembler:
    """Processes the messages of one peek. `position` is the stored position after the last append."""

    def __init__(
        self,
        source: Source,
        journal: CollectionJournal,
        position: SlotPosition,
        relations: dict[int, Relation],
        fetch_columns: FetchColumns,
        now_ms: Callable[[], int],
    ) -> None:
        """`relations` are the known row formats; the server sends each once per session at most."""
        self.position = position
        self.messages = self.events = self.bytes = 0
        self._source, self._journal, self._fetch_columns, self._now_ms = (
            source,
            journal,
            fetch_columns,
            now_ms,
        )
        self._relations = relations
        self._decoder = TextDecoder()
        self._pending: list[SourceEvent] = []
        self._pending_bytes = 0
        self._latest: dict[tuple[str, str], bytes | None] = {}
        self._begin: Begin | None = None
        self._index = 0
        self._end = position.lsn

    def feed(self, data: bytes) -> None:
        message = read_message(data)
        self.messages += 1
        match message:
            case Begin():
                self._begin, self._index = message, 0
            case Commit(end_lsn=end):
                self._begin, self._end = None, max(self._end, end)
            case Relation():
                self._relations[message.id] = message
            case Inserted() | Updated() | Deleted() | Truncated():
                self._feed_rows(message)

    def flush(self) -> None:
        """Append the pending changes and the position."""
        if self._pending or self._position() != self.position:
            self._append()

    def _feed_rows(self, message: _RowMessage | Truncated) -> None:
        assert self._begin is not None, "row messages come inside a transaction"
        lsn, done = self.position.partial_transaction
        known = self.position.covers(self._begin) or (lsn == self._begin.lsn and self._index < done)
        if not known:
            for event in self._events_of(message, self._begin):
                self._add(event)
        self._index += 1

    def _add(self, event: SourceEvent) -> None:
        self._pending.append(event)
        self._pending_bytes += len(event.after or b"")
        self._latest[event.collection, event.key] = event.after
        if len(self._pending) >= MAX_APPEND_EVENTS or self._pending_bytes >= MAX_APPEND_BYTES:
            self._append()

    def _position(self) -> SlotPosition:
        """Return the position after the messages so far. Within a transaction it counts the processed messages,
        including those of earlier peeks."""
        partial = (0, 0)
        if self._begin is not None:
            lsn, done = self.position.partial_transaction
            partial = (self._begin.lsn, max(self._index, done if lsn == self._begin.lsn else 0))
        return SlotPosition(lsn=self._end, partial_transaction=partial, tables=self.position.tables)

    def _append(self) -> None:
        position = self._position()
        self.events += self._journal.append(self._source.name, self._pending, position.token).appended
        self.bytes += self._pending_bytes
        self.position = position
        self._pending, self._pending_bytes = [], 0
        self._latest.clear()  # the journal has these images now

    # --- messages as events ---------------------------------------------------------------------------------

    def _events_of(self, message: _RowMessage | Truncated, begin: Begin) -> Iterator[SourceEvent]:
        if isinstance(message, Truncated):
            for oid in message.relations:
                table = self._table(oid, begin)
                collection = self._collection(table) if table is not None else ""
                for key in sorted(self._known_keys(collection)) if table is not None else ():
                    yield self._event(begin, collection, key, None, part=f":{collection}:{key}")
            return
        table = self._table(message.relation, begin)
        if table is not None:
            yield from self._events_of_row(message, table, self._relations[message.relation], begin)

    def _table(self, oid: int, begin: Begin) -> WatchedTable | None:
        """Return the known table; None if its scan included this transaction. Raises TableChanged."""
        table = self.position.tables.get(oid)
        if table is not None and table.scan_included(begin):
            return None
        if table is None or not table.matches_relation(self._relations[oid]):
            raise TableChanged(oid)
        return table

    def _events_of_row(
        self, message: _RowMessage, table: WatchedTable, relation: Relation, begin: Begin
    ) -> Iterator[SourceEvent]:
        collection = self._collection(table)
        row = None if isinstance(message, Deleted) else self._cells(relation, message.new)
        old = None if isinstance(message, Inserted) or message.old is None else message.old
        identity = self._cells(relation, old) if old is not None else row
        assert identity is not None, "a deletion has the old row"
        old_key = key_text([identity.get(name) for name in table.keys])
        before = None
        if not isinstance(message, Inserted) and message.full:
            before = _image(
                {"id": old_key, **{name: value for name, value in identity.items() if value is not UNCHANGED}}
            )
        if row is None:
            yield self._event(begin, collection, old_key, None, before=before)
            return
        for name in table.keys:  # the server may omit a large key that did not change
            if row[name] is UNCHANGED:
                row[name] = identity[name]
        key = key_text([row[name] for name in table.keys])
        self._fill_unchanged(table, collection, old_key, row, identity if before is not None else {})
        image = encode_or_quarantine(
            self._journal, self._source.name, self._event_id(begin), {"id": key, **row}, self._now_ms()
        )
        if old_key != key:
            yield self._event(begin, collection, old_key, None, before=before, part=":moved")
        if image is not None:
            created = isinstance(message, Inserted) or old_key != key
            yield self._event(
                begin, collection, key, image, before=None if created else before, created=created
            )

    def _cells(self, relation: Relation, row: tuple[Any, ...]) -> dict[str, Any]:
        return {
            column.name: cell if cell is UNCHANGED else self._decoder.decode(column.type, cell)
            for column, cell in zip(relation.columns, row, strict=True)
        }

    def _fill_unchanged(
        self, table: WatchedTable, collection: str, key: str, row: dict[str, Any], old: dict[str, Any]
    ) -> None:
        """Fill in large values that the server did not send: from the last image, else from the table."""
        missing = [name for name, value in row.items() if value is UNCHANGED]
        if not missing:
            return
        last = old or self._last_image(collection, key)
        found = {name: last[name] for name in missing if name in last and last[name] is not UNCHANGED}
        unknown = [name for name in missing if name not in found]
        if unknown:
            found |= self._fetch_columns(table, {name: row[name] for name in table.keys}, unknown)
        row.update({name: found.get(name) for name in missing})

    def _last_image(self, collection: str, key: str) -> dict[str, Any]:
        image = self._latest.get((collection, key))
        if image is None:
            image = self._journal.images(self._source.name, collection, [key]).get(key)
        return decode_image(image) if image is not None else {}

    def _event(
        self,
        begin: Begin,
        collection: str,
        key: str,
        after: bytes | None,
        *,
        before: bytes | None = None,
        created: bool = False,
        part: str = "",
    ) -> SourceEvent:
        return SourceEvent(
            event_id=f"{self._event_id(begin)}{part}",
            collection=collection,
            key=key,
            before=before,
            after=after,
            created=created,
            time_ms=_EPOCH_MS + begin.time_us // 1000,
            transaction=str(begin.xid),
        )

    def _event_id(self, begin: Begin) -> str:
        """Return commit LSN and message number, which are the same in repeated peeks."""
        return f"{begin.lsn:016x}:{self._index}"

    def _collection(self, table: WatchedTable) -> str:
        return collection_of(self._source.name, table.schema, table.name)

    def _known_keys(self, collection: str) -> set[str]:
        keys = self._journal.image_keys(self._source.name, collection)
        for (name, key), image in self._latest.items():
            if name == collection:
                (keys.discard if image is None else keys.add)(key)
        return keys


def _image(document: dict[str, Any]) -> bytes | None:
    """Encode the before image. None for an invalid document; the journal then uses its last image."""
    try:
        return encode_image(document)
    except SourceError:
        return None

"""Convert the messages of a slot, transaction by transaction, into document changes in the journal.

A large transaction is appended in pieces, each with the number of messages it covers; after a crash those are
skipped. So every message sees the images of its time: a TRUNCATE the rows that it removed, an unsent large value the
value that it keeps.
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
from vedette.sources.postgres.values import Values, key_text
from vedette.sources.reader import MAX_APPEND_BYTES, MAX_APPEND_EVENTS, encode_or_quarantine
from vedette.sources.records import Source, SourceEvent

__all__ = ["FetchColumns", "TableChanged", "TransactionAssembler", "collection_of"]

_EPOCH_MS = 946_684_800_000
"""2000-01-01 in ms, the epoch of PostgreSQL timestamps."""
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
    """Processes the messages of one peek. `place` is the position of the journal after the last append."""

    def __init__(
        self,
        source: Source,
        journal: CollectionJournal,
        place: SlotPosition,
        relations: dict[int, Relation],
        lookup: FetchColumns,
        now: Callable[[], int],
    ) -> None:
        """`relations` are the known row formats; the server sends each once per session at most."""
        self.place = place
        self.messages = self.events = self.bytes = 0
        self._source, self._journal, self._lookup, self._now = source, journal, lookup, now
        self._relations = relations
        self._values = Values()
        self._pending: list[SourceEvent] = []
        self._waiting_bytes = 0
        self._latest: dict[tuple[str, str], bytes | None] = {}
        self._begin: Begin | None = None
        self._index = 0
        self._end = place.lsn

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
                self._rows(message)

    def flush(self) -> None:
        """Append the pending changes and the position."""
        if self._pending or self._place() != self.place:
            self._append()

    def _rows(self, message: _RowMessage | Truncated) -> None:
        assert self._begin is not None, "rows come inside a transaction"
        number, done = self.place.partial_transaction
        known = self.place.covers(self._begin) or (number == self._begin.lsn and self._index < done)
        if not known:
            for event in self._events_of(message, self._begin):
                self._add(event)
        self._index += 1

    def _add(self, event: SourceEvent) -> None:
        self._pending.append(event)
        self._waiting_bytes += len(event.after or b"")
        self._latest[event.collection, event.key] = event.after
        if len(self._pending) >= MAX_APPEND_EVENTS or self._waiting_bytes >= MAX_APPEND_BYTES:
            self._append()

    def _place(self) -> SlotPosition:
        """Within a transaction: the number of its messages that are processed, in this peek or an earlier one."""
        partial = (0, 0)
        if self._begin is not None:
            number, done = self.place.partial_transaction
            partial = (self._begin.lsn, max(self._index, done if number == self._begin.lsn else 0))
        return SlotPosition(lsn=self._end, partial_transaction=partial, tables=self.place.tables)

    def _append(self) -> None:
        place = self._place()
        self.events += self._journal.append(self._source.name, self._pending, place.token).appended
        self.bytes += self._waiting_bytes
        self.place = place
        self._pending, self._waiting_bytes = [], 0
        self._latest.clear()  # the journal has them now

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
            yield from self._of_row(message, table, self._relations[message.relation], begin)

    def _table(self, oid: int, begin: Begin) -> WatchedTable | None:
        """The known table; None if its scan saw this transaction."""
        table = self.place.tables.get(oid)
        if table is not None and table.scan_included(begin):
            return None
        if table is None or not table.matches_relation(self._relations[oid]):
            raise TableChanged(oid)
        return table

    def _of_row(
        self, message: _RowMessage, table: WatchedTable, relation: Relation, begin: Begin
    ) -> Iterator[SourceEvent]:
        collection = self._collection(table)
        row = None if isinstance(message, Deleted) else self._cells(relation, message.new)
        old = None if isinstance(message, Inserted) or message.old is None else message.old
        told = self._cells(relation, old) if old is not None else row
        assert told is not None, "a row that is gone was told"
        was = key_text([told.get(name) for name in table.keys])
        before = None
        if not isinstance(message, Inserted) and message.full:
            before = _image(
                {"id": was, **{name: value for name, value in told.items() if value is not UNCHANGED}}
            )
        if row is None:
            yield self._event(begin, collection, was, None, before=before)
            return
        for name in table.keys:  # a large key that did not change may not be sent again
            if row[name] is UNCHANGED:
                row[name] = told[name]
        key = key_text([row[name] for name in table.keys])
        self._fill_unchanged(table, collection, was, row, told if before is not None else {})
        image = encode_or_quarantine(
            self._journal, self._source.name, self._id(begin), {"id": key, **row}, self._now()
        )
        if was != key:
            yield self._event(begin, collection, was, None, before=before, part=":moved")
        if image is not None:
            created = isinstance(message, Inserted) or was != key
            yield self._event(
                begin, collection, key, image, before=None if created else before, created=created
            )

    def _cells(self, relation: Relation, row: tuple[Any, ...]) -> dict[str, Any]:
        return {
            column.name: cell if cell is UNCHANGED else self._values.decode(column.type, cell)
            for column, cell in zip(relation.columns, row, strict=True)
        }

    def _fill_unchanged(
        self, table: WatchedTable, collection: str, key: str, row: dict[str, Any], old: dict[str, Any]
    ) -> None:
        """Fill in large values that the server did not send: from the last image, else from the table."""
        lacking = [name for name, value in row.items() if value is UNCHANGED]
        if not lacking:
            return
        last = old or self._last(collection, key)
        found = {name: last[name] for name in lacking if name in last and last[name] is not UNCHANGED}
        asked = [name for name in lacking if name not in found]
        if asked:
            found |= self._lookup(table, {name: row[name] for name in table.keys}, asked)
        row.update({name: found.get(name) for name in lacking})

    def _last(self, collection: str, key: str) -> dict[str, Any]:
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
            event_id=f"{self._id(begin)}{part}",
            collection=collection,
            key=key,
            before=before,
            after=after,
            created=created,
            time_ms=_EPOCH_MS + begin.time_us // 1000,
            transaction=str(begin.xid),
        )

    def _id(self, begin: Begin) -> str:
        """Commit LSN and index of the message in it: stable across repeated peeks."""
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
    """The image before the change; if it is not sent, the journal's last image is used."""
    try:
        return encode_image(document)
    except SourceError:
        return None

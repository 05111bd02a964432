"""Snapshots of a filter: one ordered page of documents and the cursor of the next page.

A cursor is the sort position of the page's last document: URL-safe base64 of the JSON `{"terms": […], "version": 1}`.
There is one term `[rank, value, descending]` per sort key, then one for the id. A cursor of another version is rejected
with E1201.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from vedette.errors import FilterError
from vedette.filters.collection_query import CollectionQuery, SortKey
from vedette.gateway.wire.messages import to_wire

__all__ = ["MAX_SNAPSHOT_BYTES", "snapshot_page"]

_canonical = msgspec.json.Encoder(order="sorted")
MAX_SNAPSHOT_DOCUMENTS = 1000
MAX_SNAPSHOT_BYTES = 16 * 1024 * 1024


def snapshot_page(query: CollectionQuery, documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return one ordered page; `cursor` is set if there are more. Raise FilterError if the page is too large."""
    ordered = sorted(documents, key=lambda d: _sort_position(d, query.order_by))
    if query.start_after is not None:
        start = _read_cursor(query.start_after)
        try:
            ordered = [d for d in ordered if _sort_position(d, query.order_by) > start]
        except TypeError:
            raise _invalid_cursor() from None
    limit = query.limit if query.limit is not None else MAX_SNAPSHOT_DOCUMENTS
    page = ordered[:limit]
    if query.limit is None and len(ordered) > MAX_SNAPSHOT_DOCUMENTS:
        text = f"more than {MAX_SNAPSHOT_DOCUMENTS} documents: request pages with limit and startAfter"
        raise FilterError("E1202", text, fields={"limit": "documents", "allowed": MAX_SNAPSHOT_DOCUMENTS})
    answer: dict[str, Any] = {"documents": [to_wire(d) for d in page]}
    if len(ordered) > len(page) and page:
        answer["cursor"] = _write_cursor(page[-1], query.order_by)
    return answer


class _SortPosition(tuple[Any, ...]):
    """Sort position of a document. Compares term by term, each in its own direction."""

    __slots__ = ()


def _sort_position(document: Mapping[str, Any], order: Sequence[SortKey]) -> _SortPosition:
    terms = [_term(_field(document, each.field), each.descending) for each in order]
    return _SortPosition((*terms, _term(str(document["id"]), False)))


def _field(document: Mapping[str, Any], path: str) -> Any:
    value: Any = document
    for step in path.split("."):
        if not isinstance(value, Mapping) or step not in value:
            return _MISSING
        value = value[step]
    return to_wire(value)


_MISSING = object()


class _Term:
    """One sortable value. Order: missing < null < false < true < numbers < strings < other values."""

    __slots__ = ("descending", "rank", "value")

    def __init__(self, rank: int, value: Any, descending: bool) -> None:
        self.rank, self.value, self.descending = rank, value, descending

    def __lt__(self, other: _Term) -> bool:
        mine, theirs = (self.rank, self.value), (other.rank, other.value)
        return theirs < mine if self.descending else mine < theirs

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Term) and (self.rank, self.value) == (other.rank, other.value)

    def __gt__(self, other: _Term) -> bool:
        return other < self

    __hash__ = None  # type: ignore[assignment]


def _term(value: Any, descending: bool) -> _Term:
    if value is _MISSING:
        return _Term(0, 0, descending)
    if value is None:
        return _Term(1, 0, descending)
    if isinstance(value, bool):
        return _Term(2, value, descending)
    if isinstance(value, int | float):
        return _Term(3, value, descending)
    if isinstance(value, str):
        return _Term(4, value.encode(), descending)
    return _Term(5, _canonical.encode(to_wire(value)), descending)


CURSOR_VERSION = 1


class _Cursor(msgspec.Struct, frozen=True, kw_only=True):
    version: int = msgspec.field(name="version")
    terms: list[tuple[int, int | float | str | bool, bool]] = msgspec.field(name="terms")
    """Rank, value and True for descending, of each sort key and of the id."""


_cursor_decoder = msgspec.json.Decoder(_Cursor)


def _write_cursor(document: Mapping[str, Any], order: Sequence[SortKey]) -> str:
    terms = [
        (t.rank, t.value.decode() if isinstance(t.value, bytes) else t.value, t.descending)
        for t in _sort_position(document, order)
    ]
    data = _canonical.encode(_Cursor(version=CURSOR_VERSION, terms=terms))
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _read_cursor(text: str) -> _SortPosition:
    try:
        cursor = _cursor_decoder.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, msgspec.MsgspecError):
        raise _invalid_cursor() from None
    if cursor.version != CURSOR_VERSION:
        raise _invalid_cursor()
    return _SortPosition(
        _Term(rank, value.encode() if isinstance(value, str) else value, descending)
        for rank, value, descending in cursor.terms
    )


def _invalid_cursor() -> FilterError:
    return FilterError(
        "E1201", "query.startAfter: not a cursor of an earlier page; request the first page again"
    )

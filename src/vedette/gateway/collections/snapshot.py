"""Documents of a collection as of an offset: the journal's latest images, rolled back.

Pages are read while the source keeps writing, and the journal is ahead of the stream. One rule corrects both: if a key
changed after the requested offset, use the before-image of its first change after that offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from vedette.errors import FilterError
from vedette.sources.images import decode_image
from vedette.sources.journal.seam import CollectionJournal
from vedette.sources.records import ChangeRow

__all__ = ["MOST_ROWS", "DocumentPredicate", "Documents", "PartitionPosition", "documents_at"]

PartitionPosition: TypeAlias = tuple[int, int]
"""(epoch, seq) within a partition."""
Documents: TypeAlias = dict[tuple[str, str], dict[str, Any]]
"""Documents by (collection name in the journal, key)."""
DocumentPredicate: TypeAlias = Callable[[str, str, Mapping[str, Any]], bool]
"""Called with collection, key and document; True if the document matches."""
MOST_ROWS = 100_000
"""Maximum number of documents in a snapshot. A client that exceeds it must narrow its request."""
_PAGE = 2_000


def documents_at(
    journal: CollectionJournal,
    tenant: str,
    collections: Sequence[str],
    holds: DocumentPredicate,
    *,
    after: int | None = None,
    told: Mapping[int, PartitionPosition] | None = None,
) -> tuple[int, Documents]:
    """Return an offset and the matching documents as of that offset.

    Without `after`: as of now. With `after`: as of that offset, plus later changes up to the positions in `told`.
    """
    place, last = after, 0
    found: Documents = {}
    for collection in collections:
        for offset, documents in _pages(journal, tenant, collection):
            place, last = offset if place is None else place, offset
            for key, image in documents:
                _keep(found, (collection, key), decode_image(image), holds)
    assert place is not None
    undone: set[tuple[str, str]] = set()
    for row in _changes(journal, place, last):
        name = (row.collection, row.key)
        if row.tenant != tenant or row.collection not in collections or name in undone or _is_told(row, told):
            continue
        undone.add(name)
        found.pop(name, None)
        if row.before is not None:
            _keep(found, name, decode_image(row.before), holds)
    return place, found


def _pages(
    journal: CollectionJournal, tenant: str, collection: str
) -> Iterator[tuple[int, tuple[tuple[str, bytes], ...]]]:
    after_key: str | None = None
    while True:
        page = journal.snapshot(tenant, collection, after_key=after_key, limit=_PAGE)
        yield page.offset, page.documents
        if len(page.documents) < _PAGE:
            return
        after_key = page.documents[-1][0]


def _changes(journal: CollectionJournal, after: int, upto: int) -> Iterator[ChangeRow]:
    """Read changes in pages, because there are many after a long pipeline downtime."""
    while after < upto:
        rows = journal.read(after, upto, limit=_PAGE)
        yield from rows
        after = rows[-1].offset if len(rows) == _PAGE else upto


def _is_told(row: ChangeRow, told: Mapping[int, PartitionPosition] | None) -> bool:
    return told is not None and (row.epoch, row.seq) <= told.get(row.partition, (0, 0))


def _keep(
    found: Documents, name: tuple[str, str], document: dict[str, Any], holds: DocumentPredicate
) -> None:
    if not holds(*name, document):
        return
    found[name] = document
    if len(found) > MOST_ROWS:
        text = f"the snapshot has more than {MOST_ROWS} documents: narrow the request, or use initial: none"
        raise FilterError("E1202", text, fields={"limit": "documents", "allowed": MOST_ROWS})

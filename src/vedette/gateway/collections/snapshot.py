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

__all__ = ["MAX_SNAPSHOT_DOCUMENTS", "DocumentPredicate", "Documents", "PartitionPosition", "documents_at"]

PartitionPosition: TypeAlias = tuple[int, int]
"""(epoch, seq) within a partition."""
Documents: TypeAlias = dict[tuple[str, str], dict[str, Any]]
"""Documents by (collection name in the journal, key)."""
DocumentPredicate: TypeAlias = Callable[[str, str, Mapping[str, Any]], bool]
"""Called with collection, key and document; True if the document matches."""
MAX_SNAPSHOT_DOCUMENTS = 100_000
"""Maximum number of documents in a snapshot. A client that exceeds it must narrow its request."""
_PAGE = 2_000


def documents_at(
    journal: CollectionJournal,
    tenant: str,
    collections: Sequence[str],
    matches: DocumentPredicate,
    *,
    after: int | None = None,
    published: Mapping[int, PartitionPosition] | None = None,
) -> tuple[int, Documents]:
    """Return an offset and the matching documents as of that offset.

    Without `after`: as of now. With `after`: as of that offset, plus later changes up to the positions in `published`.
    """
    start, last = after, 0
    found: Documents = {}
    for collection in collections:
        for offset, documents in _pages(journal, tenant, collection):
            start, last = offset if start is None else start, offset
            for key, image in documents:
                _add_matching(found, (collection, key), decode_image(image), matches)
    assert start is not None
    rolled_back: set[tuple[str, str]] = set()
    for row in _changes(journal, start, last):
        name = (row.collection, row.key)
        if (
            row.tenant != tenant
            or row.collection not in collections
            or name in rolled_back
            or _is_published(row, published)
        ):
            continue
        rolled_back.add(name)
        found.pop(name, None)
        if row.before is not None:
            _add_matching(found, name, decode_image(row.before), matches)
    return start, found


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


def _is_published(row: ChangeRow, published: Mapping[int, PartitionPosition] | None) -> bool:
    return published is not None and (row.epoch, row.seq) <= published.get(row.partition, (0, 0))


def _add_matching(
    found: Documents, name: tuple[str, str], document: dict[str, Any], matches: DocumentPredicate
) -> None:
    if not matches(*name, document):
        return
    found[name] = document
    if len(found) > MAX_SNAPSHOT_DOCUMENTS:
        text = (
            f"the snapshot has more than {MAX_SNAPSHOT_DOCUMENTS} documents: narrow it, or use initial: none"
        )
        raise FilterError("E1202", text, fields={"limit": "documents", "allowed": MAX_SNAPSHOT_DOCUMENTS})

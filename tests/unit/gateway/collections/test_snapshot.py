"""A snapshot equals what a stream has published up to its position, however far the journal has advanced."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vedette.errors import FilterError
from vedette.gateway.collections import snapshot as snapshot_module
from vedette.gateway.collections.snapshot import Documents, documents_at
from vedette.sources.images import decode_image, encode_image
from vedette.sources.journal.seam import CollectionJournal, open_journal
from vedette.sources.records import Source, SourceEvent

KEYS = st.sampled_from("abcdef")
WRITES = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.integers(0, 9))), min_size=1, max_size=30)
COLLECTION = "shop::orders"


def journal_with(catalog: Path, writes: list[tuple[str, int | None]]) -> CollectionJournal:
    journal = open_journal(catalog)
    journal.add_source(Source(name="shop", kind="mongodb", address="", partitions=3))
    for number, (key, n) in enumerate(writes):
        image = None if n is None else encode_image({"n": n})
        event = SourceEvent(event_id=str(number), collection=COLLECTION, key=key, after=image, time_ms=0)
        journal.append("shop", [event], None)
    return journal


def at_least_five(collection: str, key: str, document: Any) -> bool:
    return bool(document["n"] >= 5)


@settings(max_examples=25)
@given(writes=WRITES, data=st.data())
def test_a_snapshot_equals_what_was_published(writes: list[tuple[str, int | None]], data: st.DataObject):
    with TemporaryDirectory() as folder:
        journal = journal_with(Path(folder), writes)
        rows = list(journal.read(0, journal.last_offset()))
        after = data.draw(st.integers(0, journal.last_offset()))
        # Of each partition a stream was told everything up to some change, and what is up to `after` in any case.
        delivered: dict[int, tuple[int, int]] = {}
        for partition in {row.partition for row in rows}:
            own = [row for row in rows if row.partition == partition]
            count = data.draw(st.integers(0, len(own)))
            if count:
                delivered[partition] = (own[count - 1].epoch, own[count - 1].seq)
        expected: Documents = {}
        for row in rows:
            if row.offset <= after or (row.epoch, row.seq) <= delivered.get(row.partition, (0, 0)):
                expected.pop((COLLECTION, row.key), None)
                document = decode_image(row.after) if row.after is not None else None
                if document is not None and at_least_five(COLLECTION, row.key, document):
                    expected[COLLECTION, row.key] = document
        found = documents_at(
            journal, "default", [COLLECTION], at_least_five, after=after, published=delivered
        )
        assert found == (after, expected)
        now = documents_at(journal, "default", [COLLECTION], at_least_five)
        assert now[0] == journal.last_offset()
        assert documents_at(journal, "another", [COLLECTION], at_least_five)[1] == {}
        journal.close()


def test_pages_are_consistent_while_the_source_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(snapshot_module, "_PAGE", 2)
    journal = journal_with(tmp_path, [(key, 7) for key in "abcd"])
    snapshot, place = journal.snapshot, journal.last_offset()
    numbers = iter(range(100, 200))

    def while_others_write(*arguments: Any, **options: Any) -> Any:
        page = snapshot(*arguments, **options)
        for key, n in (("d", 1), ("a", 2), ("c", None), ("aa", 9)):
            image = None if n is None else encode_image({"n": n})
            event = SourceEvent(
                event_id=str(next(numbers)), collection=COLLECTION, key=key, after=image, time_ms=0
            )
            journal.append("shop", [event], None)
        return page

    monkeypatch.setattr(journal, "snapshot", while_others_write)
    offset, found = documents_at(journal, "default", [COLLECTION], at_least_five)
    assert offset == place
    assert found == {(COLLECTION, key): {"n": 7} for key in "abcd"}
    journal.close()


def test_a_snapshot_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(snapshot_module, "MAX_SNAPSHOT_DOCUMENTS", 3)
    journal = journal_with(tmp_path, [(key, 7) for key in "abcd"])
    with pytest.raises(FilterError, match="E1202"):
        documents_at(journal, "default", [COLLECTION], at_least_five)
    journal.close()

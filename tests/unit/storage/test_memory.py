"""The store in memory is strict: a batch that violates the seam's contract raises."""

from __future__ import annotations

import pytest

from vedette.errors import StoreError
from vedette.storage.memory import MemoryStore
from vedette.storage.seam import Batch, ElementRecord, JournalRow

NODE, EDGE = ElementRecord("n", "Task", b"{}"), ElementRecord("e", "joins", b"{}", ("n",))
ABOVE = ElementRecord("a", "joins", b"{}", ("e",))


def row(tick: int) -> JournalRow:
    return JournalRow(tick, "t", "Task", "n", None, None, 0)


BROKEN = [
    (Batch(sequence=1, puts=[NODE], deletes=["n"]), "puts and deletes it"),
    (Batch(sequence=1, puts=[NODE, NODE]), "names an element twice"),
    (Batch(sequence=1, puts=[NODE, ABOVE, EDGE]), "edge a stands before the edges it joins"),
    (Batch(sequence=2, journal=[row(2), row(1)]), "not in tick order"),
    (Batch(sequence=1, journal=[row(1), row(2)]), "not in tick order up to 1"),
    (Batch(sequence=1, meta=[("store.tick", "9")]), "reserved for the store"),
]


@pytest.mark.parametrize(("batch", "words"), BROKEN, ids=[words for _, words in BROKEN])
def test_contract_violations_raise(batch: Batch, words: str) -> None:
    store = MemoryStore()
    with pytest.raises(ValueError, match=words):
        store.append(batch)
    assert (store.info().sequence, list(store.elements()), store.last_offset()) == (0, [], 0)


def test_stored_edge_may_change_after_an_edge_that_targets_it() -> None:
    store = MemoryStore()
    store.append(Batch(sequence=1, puts=[NODE, EDGE]))
    store.append(Batch(sequence=2, puts=[ABOVE, EDGE]))
    assert [record.id for record in store.elements()] == ["n", "e", "a"]


def test_outdated_writer_is_fenced() -> None:
    first = MemoryStore()
    first.open_for_writing()
    first.reopen().open_for_writing()
    with pytest.raises(StoreError, match="opened by another engine") as caught:
        first.append(Batch(sequence=1))
    assert caught.value.code == "E6002"

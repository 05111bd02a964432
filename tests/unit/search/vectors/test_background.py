"""A store that opens in the background: whoever needs it waits, and a failure is tried again by the next."""

from __future__ import annotations

from threading import Event

import pytest

from tests.contracts.test_vector_store import file
from vedette.errors import IngestError
from vedette.search.vectors.background import BackgroundVectorStore
from vedette.testing.vectors import MemoryVectorStore


def test_whoever_needs_it_waits() -> None:
    may_open = Event()

    def open() -> MemoryVectorStore:
        may_open.wait()
        return MemoryVectorStore()

    store = BackgroundVectorStore(open)
    may_open.set()
    store.ensure_collection("docs", 32)
    store.replace("docs", file("/a", "words"))
    store.flush()
    assert (store.paths("docs"), dict(store.count_by_collection())) == ({"/a"}, {"docs": 1})
    assert set(store.stored_files("docs", ["/a", "/b"])) == {"/a"}
    (hit,) = store.search("docs", file("/a", "words").vectors[0], "hashing-32", 1)
    assert hit.path == "/a"
    store.remove("docs", "/a")
    assert store.paths("docs") == set()
    store.close()


def test_a_store_that_cannot_be_opened_is_tried_again() -> None:
    attempts = 0

    def open() -> MemoryVectorStore:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise IngestError("E4521", "another process has it")
        return MemoryVectorStore()

    store = BackgroundVectorStore(open)
    for _ in range(2):
        with pytest.raises(IngestError, match="another process has it"):
            store.count_by_collection()
    assert store.count_by_collection() == {}
    assert attempts == 3
    store.close()


def test_closing_what_never_opened() -> None:
    def open() -> MemoryVectorStore:
        raise IngestError("E4521", "no space")

    BackgroundVectorStore(open).close()

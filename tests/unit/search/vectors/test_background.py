"""A store that opens in the background: methods wait until it is open, and a failed open is retried."""

from __future__ import annotations

from threading import Event

import pytest

from tests.contracts.test_vector_store import file
from vedette.errors import IngestError
from vedette.search.vectors.background import BackgroundVectorStore
from vedette.testing.vectors import MemoryVectorStore


def test_methods_wait_until_the_store_is_open() -> None:
    may_open = Event()

    def open() -> MemoryVectorStore:
        may_open.wait()
        return MemoryVectorStore()

    store = BackgroundVectorStore(open)
    may_open.set()
    store.ensure_collection("docs", 32)
    store.replace("docs", file("/a", "words"))
    store.flush()
    assert dict(store.count_by_collection()) == {"docs": 1}
    assert set(store.stored_files("docs", ["/a", "/b"])) == {"/a"}
    (hit,) = store.search("docs", file("/a", "words").vectors[0], "hashing-32", 1)
    assert hit.path == "/a"
    store.remove("docs", "/a")
    assert dict(store.count_by_collection()) == {"docs": 0}
    store.close()


def test_failed_open_is_retried() -> None:
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


def test_close_of_a_store_that_never_opened() -> None:
    def open() -> MemoryVectorStore:
        raise IngestError("E4521", "no space")

    BackgroundVectorStore(open).close()

"""The contract of the vector store, for Qdrant in a folder, Qdrant on a server, and the in-memory twin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import httpx
import pytest
from qdrant_client.http.exceptions import UnexpectedResponse

from tests.support.qdrant_server import qdrant_server
from vedette.errors import IngestError
from vedette.search.chunking import Chunk
from vedette.search.document import SourceSpan
from vedette.search.embedding import HashingEmbedder
from vedette.search.vectors.qdrant import QdrantStore
from vedette.search.vectors.store import FileVectors, StoredFile, VectorStore
from vedette.testing.vectors import MemoryVectorStore

EMBEDDER = HashingEmbedder(32)


@pytest.fixture(params=["folder", "server", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[VectorStore]:
    with ExitStack() as stack:
        stores: dict[str, Callable[[], VectorStore]] = {
            "folder": lambda: QdrantStore(tmp_path / "vectors"),
            "server": lambda: QdrantStore(stack.enter_context(qdrant_server())[0]),
            "memory": MemoryVectorStore,
        }
        opened = stores[request.param]()
        opened.ensure_collection("docs", 32)
        yield opened
        opened.close()


def file(path: str, *texts: str, content_hash: str = "h") -> FileVectors:
    span = SourceSpan(start=3, end=5, unit="line")
    return FileVectors(
        path=path,
        watch_id="w",
        content_hash=content_hash,
        embedder=EMBEDDER.name,
        chunks=[Chunk(text=text, span=span, title="t") for text in texts],
        vectors=EMBEDDER.embed(texts),
    )


def search_texts(store: VectorStore, text: str, collection: str = "docs", limit: int = 10) -> list[str]:
    hits = store.search(collection, EMBEDDER.embed([text])[0], EMBEDDER.name, limit)
    return [f"{hit.path}:{hit.text}" for hit in hits]


def test_search_returns_text_and_span(store: VectorStore) -> None:
    store.replace("docs", file("/a", "red apples", "green pears"))
    (best, *_) = store.search("docs", EMBEDDER.embed(["green pears"])[0], EMBEDDER.name, 10)
    assert (best.path, best.start, best.end, best.unit, best.title) == ("/a", 3, 5, "line", "t")
    assert best.text == "green pears"
    assert best.score == pytest.approx(1.0, abs=1e-4)


def test_replace_removes_all_old_chunks(store: VectorStore) -> None:
    store.replace("docs", file("/a", "one", "two", "three", content_hash="old"))
    store.replace("docs", file("/b", "other"))
    for _ in range(2):
        store.replace("docs", file("/a", "four", content_hash="new"))
        assert store.count_by_collection() == {"docs": 2}
        assert set(search_texts(store, "one")) == {"/a:four", "/b:other"}
        assert store.stored_files("docs", ["/a", "/b", "/c"]) == {
            "/a": StoredFile(content_hash="new", embedder="hashing-32"),
            "/b": StoredFile(content_hash="h", embedder="hashing-32"),
        }
    store.replace("docs", file("/a", *(f"word{number}" for number in range(40)), content_hash="long"))
    assert store.count_by_collection() == {"docs": 41}


def test_remove(store: VectorStore) -> None:
    store.replace("docs", file("/a", "one", "two"))
    store.replace("docs", file("/ab", "one"))
    for _ in range(2):
        store.remove("docs", "/a")
        assert set(store.stored_files("docs", ["/a", "/ab"])) == {"/ab"}
    store.remove("nowhere", "/a")


def test_search_is_limited_to_collection_and_embedder(store: VectorStore) -> None:
    store.ensure_collection("other", 32)
    store.replace("docs", file("/a", "one"))
    store.replace("other", file("/a", "two"))
    assert search_texts(store, "one") == ["/a:one"]
    assert search_texts(store, "one", "other") == ["/a:two"]
    assert search_texts(store, "one", "nowhere") == []
    assert store.search("docs", EMBEDDER.embed(["one"])[0], "another", 10) == []


def test_vectors_of_another_size_are_rejected(store: VectorStore) -> None:
    for _ in range(2):
        with pytest.raises(IngestError, match="E4523"):
            store.ensure_collection("docs", 64)
    store.ensure_collection("docs", 32)


def test_stored_files_of_many_paths(store: VectorStore) -> None:
    paths = [f"/{number}" for number in range(1_200)]
    for path in paths[::100]:
        store.replace("docs", file(path, "x"))
    assert set(store.stored_files("docs", paths)) == set(paths[::100])


@pytest.mark.parametrize("steps_done", range(4))
@pytest.mark.parametrize("then", ["shorter", "removed"])
def test_interrupted_replace_can_be_repeated(tmp_path: Path, steps_done: int, then: str) -> None:
    store = QdrantStore(tmp_path)
    store.ensure_collection("docs", 32)
    store.replace("docs", file("/a", "one", "two", "three", content_hash="old"))
    client: Any = store._client
    real, steps = client.upsert, iter(range(4))

    def fail_at_step(collection: str, points: list[Any], wait: bool) -> None:
        if next(steps) == steps_done:
            raise OSError("killed")
        real(collection, points, wait=wait)

    client.upsert = fail_at_step
    longer = file("/a", *(f"word{number}" for number in range(9)), content_hash="new")
    with pytest.raises(IngestError, match="killed") if steps_done < 3 else nullcontext():
        store.replace("docs", longer)
    client.upsert = real
    finished = {0: "old", 3: "new"}.get(steps_done)
    stored = store.stored_files("docs", ["/a"])
    assert [each.content_hash for each in stored.values()] == ([finished] if finished else [])
    if then == "removed":
        store.remove("docs", "/a")
        assert store.count_by_collection() == {"docs": 0}
    else:
        store.replace("docs", file("/a", "four", "five", content_hash="newest"))
        assert store.count_by_collection() == {"docs": 2}
    store.close()


def test_folder_open_in_another_process_is_an_error(tmp_path: Path) -> None:
    first = QdrantStore(tmp_path)
    with pytest.raises(IngestError, match=r"E4521.*another process has the folder open"):
        QdrantStore(tmp_path)
    first.close()


def test_stored_files_survive_a_restart(tmp_path: Path) -> None:
    first = QdrantStore(tmp_path)
    first.ensure_collection("docs", 32)
    first.replace("docs", file("/a", "one", "two"))
    first.close()
    second = QdrantStore(tmp_path)
    assert second.count_by_collection() == {"docs": 2}
    assert search_texts(second, "two")[0] == "/a:two"
    second.close()


def test_server_that_does_not_run_is_e4521() -> None:
    store = QdrantStore("http://127.0.0.1:9")
    with pytest.raises(IngestError, match=r"E4521.*check that the server runs"):
        store.ensure_collection("docs", 32)
    store.close()


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422, 500, 503])
def test_only_rejected_requests_are_e4523(status: int) -> None:
    """Any other status is a failure of the server (E4521), for which the queue waits."""
    store = QdrantStore("http://127.0.0.1:9")

    def raise_status(*_: object) -> bool:
        raise UnexpectedResponse(status, "no", b"", httpx.Headers())

    store._client.collection_exists = raise_status
    with pytest.raises(IngestError, match="E4523" if status in (400, 413, 422) else "E4521"):
        store.ensure_collection("docs", 32)
    store.close()


def test_name_that_local_mode_rejects_is_e4523(tmp_path: Path) -> None:
    store = QdrantStore(tmp_path)
    with pytest.raises(IngestError, match=r"E4523.*x/y.*another collection name"):
        store.ensure_collection("x/y", 32)
    store.close()


def test_error_texts_of_a_damaged_and_an_unwritable_folder(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text("{")
    with pytest.raises(IngestError, match=r"E4521.*damaged"):
        QdrantStore(tmp_path)
    with pytest.raises(IngestError, match=r"E4521.*disk has space"):
        QdrantStore(tmp_path / "meta.json" / "below")

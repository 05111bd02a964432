"""One contract for the vector store: Qdrant in a folder, Qdrant by a URL, and their twin in memory."""

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
        makers: dict[str, Callable[[], VectorStore]] = {
            "folder": lambda: QdrantStore(tmp_path / "vectors"),
            "server": lambda: QdrantStore(stack.enter_context(qdrant_server())[0]),
            "memory": MemoryVectorStore,
        }
        made = makers[request.param]()
        made.ensure_collection("docs", 32)
        yield made
        made.close()


def file(path: str, *texts: str, content_hash: str = "h") -> FileVectors:
    place = SourceSpan(start=3, end=5, unit="line")
    return FileVectors(
        path=path,
        watch_id="w",
        content_hash=content_hash,
        embedder=EMBEDDER.name,
        chunks=[Chunk(text=text, span=place, title="t") for text in texts],
        vectors=EMBEDDER.embed(texts),
    )


def found(store: VectorStore, text: str, collection: str = "docs", limit: int = 10) -> list[str]:
    hits = store.search(collection, EMBEDDER.embed([text])[0], EMBEDDER.name, limit)
    return [f"{hit.path}:{hit.text}" for hit in hits]


def test_what_is_stored_is_found_with_its_place(store: VectorStore) -> None:
    store.replace("docs", file("/a", "red apples", "green pears"))
    (best, *_) = store.search("docs", EMBEDDER.embed(["green pears"])[0], EMBEDDER.name, 10)
    assert (best.path, best.start, best.end, best.unit, best.title) == ("/a", 3, 5, "line", "t")
    assert best.text == "green pears"
    assert best.score == pytest.approx(1.0, abs=1e-4)


def test_replacing_leaves_nothing_of_the_old(store: VectorStore) -> None:
    store.replace("docs", file("/a", "one", "two", "three", content_hash="old"))
    store.replace("docs", file("/b", "other"))
    for _ in range(2):
        store.replace("docs", file("/a", "four", content_hash="new"))
        assert store.count_by_collection() == {"docs": 2}
        assert set(found(store, "one")) == {"/a:four", "/b:other"}
        assert store.stored_files("docs", ["/a", "/b", "/c"]) == {
            "/a": StoredFile(content_hash="new", embedder="hashing-32"),
            "/b": StoredFile(content_hash="h", embedder="hashing-32"),
        }
    store.replace("docs", file("/a", *(f"word{number}" for number in range(40)), content_hash="long"))
    assert store.count_by_collection() == {"docs": 41}


def test_removing(store: VectorStore) -> None:
    store.replace("docs", file("/a", "one", "two"))
    store.replace("docs", file("/ab", "one"))
    for _ in range(2):
        store.remove("docs", "/a")
        assert store.paths("docs") == {"/ab"}
    store.remove("nowhere", "/a")


def test_collections_are_apart_and_vectors_of_another_embedder_are_not_compared(store: VectorStore) -> None:
    store.ensure_collection("other", 32)
    store.replace("docs", file("/a", "one"))
    store.replace("other", file("/a", "two"))
    assert found(store, "one") == ["/a:one"]
    assert found(store, "one", "other") == ["/a:two"]
    assert found(store, "one", "nowhere") == []
    assert store.search("docs", EMBEDDER.embed(["one"])[0], "another", 10) == []


def test_vectors_of_another_size_are_refused(store: VectorStore) -> None:
    for _ in range(2):
        with pytest.raises(IngestError, match="E4523"):
            store.ensure_collection("docs", 64)
    store.ensure_collection("docs", 32)


def test_many_paths_at_once(store: VectorStore) -> None:
    paths = [f"/{number}" for number in range(1_200)]
    for path in paths[::100]:
        store.replace("docs", file(path, "x"))
    assert set(store.stored_files("docs", paths)) == set(paths[::100]) == store.paths("docs")


@pytest.mark.parametrize("steps_done", range(4))
@pytest.mark.parametrize("then", ["shorter", "removed"])
def test_a_death_within_a_replacement_leaves_nothing_behind(
    tmp_path: Path, steps_done: int, then: str
) -> None:
    store = QdrantStore(tmp_path)
    store.ensure_collection("docs", 32)
    store.replace("docs", file("/a", "one", "two", "three", content_hash="old"))
    client: Any = store._client
    real, steps = client.upsert, iter(range(4))

    def dying(collection: str, points: list[Any], wait: bool) -> None:
        if next(steps) == steps_done:
            raise OSError("killed")
        real(collection, points, wait=wait)

    client.upsert = dying
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


def test_a_folder_is_for_one_process_and_says_so(tmp_path: Path) -> None:
    first = QdrantStore(tmp_path)
    with pytest.raises(IngestError, match=r"E4521.*one process at a time"):
        QdrantStore(tmp_path)
    first.close()


def test_what_is_stored_survives(tmp_path: Path) -> None:
    first = QdrantStore(tmp_path)
    first.ensure_collection("docs", 32)
    first.replace("docs", file("/a", "one", "two"))
    first.close()
    second = QdrantStore(tmp_path)
    assert second.count_by_collection() == {"docs": 2}
    assert found(second, "two")[0] == "/a:two"
    second.close()


def test_a_server_that_is_not_there_is_e4521() -> None:
    store = QdrantStore("http://127.0.0.1:9")
    with pytest.raises(IngestError, match=r"E4521.*is the server running"):
        store.ensure_collection("docs", 32)
    store.close()


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422, 500, 503])
def test_only_what_a_server_looked_at_and_refused_is_e4523(status: int) -> None:
    """The rest is the server's own trouble, and the queue waits for it to end."""
    store = QdrantStore("http://127.0.0.1:9")

    def answered(*_: object) -> bool:
        raise UnexpectedResponse(status, "no", b"", httpx.Headers())

    store._client.collection_exists = answered
    with pytest.raises(IngestError, match="E4523" if status in (400, 413, 422) else "E4521"):
        store.ensure_collection("docs", 32)
    store.close()


def test_a_name_that_a_folder_does_not_take_is_e4523(tmp_path: Path) -> None:
    store = QdrantStore(tmp_path)
    with pytest.raises(IngestError, match=r"E4523.*x/y.*another name"):
        store.ensure_collection("x/y", 32)
    store.close()


def test_what_is_wrong_with_a_folder_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text("{")
    with pytest.raises(IngestError, match=r"E4521.*damaged"):
        QdrantStore(tmp_path)
    with pytest.raises(IngestError, match=r"E4521.*room on its disk"):
        QdrantStore(tmp_path / "meta.json" / "below")

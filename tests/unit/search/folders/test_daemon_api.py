"""Asking the daemon that holds the vectors: whatever is asked gets an answer, and nobody else may ask."""

from __future__ import annotations

import json
import socket
import stat
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from vedette.errors import IngestError
from vedette.search.chunking import Chunk
from vedette.search.document import SourceSpan
from vedette.search.embedding import HashingEmbedder
from vedette.search.folders.daemon_api import DaemonApi, DaemonClient, DaemonServer
from vedette.search.vectors.qdrant import QdrantStore
from vedette.search.vectors.store import FileVectors

EMBEDDER = HashingEmbedder(64)


def file(path: str, text: str) -> FileVectors:
    place = SourceSpan(start=1, end=2, unit="line")
    return FileVectors(
        path=path,
        watch_id="w",
        content_hash="h",
        embedder=EMBEDDER.name,
        chunks=[Chunk(text=text, span=place, title="")],
        vectors=EMBEDDER.embed([text]),
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[QdrantStore]:
    made = QdrantStore(tmp_path / "vectors")
    made.ensure_collection("docs", 64)
    made.replace("docs", file("/a", "red apples"))
    yield made
    made.close()


@pytest.fixture
def link(tmp_path: Path, store: QdrantStore) -> Iterator[DaemonClient]:
    path = tmp_path / "daemon.sock"
    path.write_text("left by one that was killed")
    with DaemonServer(path, DaemonApi(store, EMBEDDER, lambda _: nullcontext())):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        yield DaemonClient(path)
    assert not path.exists()


def test_search_collections_and_removal(link: DaemonClient, store: QdrantStore) -> None:
    assert link.is_running()
    (hit,) = link.search("docs", "apples that are red", 5)
    assert (hit.path, hit.start, hit.end, hit.text) == ("/a", 1, 2, "red apples")
    assert link.search("nowhere", "apples", 5) == []
    assert link.collections() == {"docs": 1}
    assert link.remove("w", "docs", ["/a", "/never"]) == 1
    assert store.count_by_collection() == {"docs": 0}


@pytest.mark.parametrize(
    "request_",
    [None, [], {}, {"verb": "delete everything"}, {"verb": "search"}, {"verb": "remove", "paths": 3}],
)
def test_a_wrong_question_is_answered(store: QdrantStore, request_: Any) -> None:
    answer = DaemonApi(store, EMBEDDER, lambda _: nullcontext()).handle(request_)
    assert answer["code"] == "E4504"


def test_what_is_no_question_at_all(link: DaemonClient, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(tmp_path / "daemon.sock"))
        connection.sendall(b"\xff{\n")
        with connection.makefile("rb") as stream:
            assert json.loads(stream.readline())["code"] == "E4504"
    assert link.is_running()


def test_the_trouble_of_the_store_reaches_who_asked(
    link: DaemonClient, store: QdrantStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> Any:
        raise IngestError("E4521", "no space left on device")

    monkeypatch.setattr(store, "count_by_collection", full)
    with pytest.raises(IngestError, match=r"E4521 .*no space left"):
        link.collections()


def test_nobody_there(tmp_path: Path) -> None:
    link = DaemonClient(tmp_path / "none.sock")
    assert not link.is_running()
    with pytest.raises(IngestError, match=r"E4521 .*does not answer"):
        link.collections()


def test_searching_while_files_are_stored(link: DaemonClient, store: QdrantStore) -> None:
    """A search sees a file whole: as it was or as it is, from any number of threads."""
    failures: list[BaseException] = []

    def search() -> None:
        try:
            for _ in range(30):
                texts = {hit.text for hit in link.search("docs", "red apples", 10) if hit.path == "/a"}
                assert texts == {"red apples"}
        except BaseException as error:
            failures.append(error)

    threads = [Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(60):
        store.replace("docs", file(f"/{number % 7}", f"word {number}"))
        store.remove("docs", f"/{number % 5}")
    for thread in threads:
        thread.join()
    assert failures == []

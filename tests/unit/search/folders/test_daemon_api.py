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
from vedette.search.document import Place
from vedette.search.embedding import HashingEmbedder
from vedette.search.folders.daemon_api import DaemonLink, LinkServer, VectorDesk
from vedette.search.vectors.qdrant import QdrantVectors
from vedette.search.vectors.store import FileVectors

EMBEDDER = HashingEmbedder(64)


def file(path: str, text: str) -> FileVectors:
    place = Place(start=1, end=2, unit="line")
    return FileVectors(
        path=path,
        watch_id="w",
        content_hash="h",
        embedder=EMBEDDER.name,
        chunks=[Chunk(text=text, place=place, title="")],
        vectors=EMBEDDER.embed([text]),
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[QdrantVectors]:
    made = QdrantVectors(tmp_path / "vectors")
    made.prepare("docs", 64)
    made.replace("docs", file("/a", "red apples"))
    yield made
    made.close()


@pytest.fixture
def link(tmp_path: Path, store: QdrantVectors) -> Iterator[DaemonLink]:
    path = tmp_path / "daemon.sock"
    path.write_text("left by one that was killed")
    with LinkServer(path, VectorDesk(store, EMBEDDER, lambda _: nullcontext())):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        yield DaemonLink(path)
    assert not path.exists()


def test_search_collections_and_removal(link: DaemonLink, store: QdrantVectors) -> None:
    assert link.is_there()
    (hit,) = link.search("docs", "apples that are red", 5)
    assert (hit.path, hit.start, hit.end, hit.text) == ("/a", 1, 2, "red apples")
    assert link.search("nowhere", "apples", 5) == []
    assert link.collections() == {"docs": 1}
    assert link.remove("w", "docs", ["/a", "/never"]) == 1
    assert store.collections() == {"docs": 0}


@pytest.mark.parametrize(
    "request_",
    [None, [], {}, {"verb": "delete everything"}, {"verb": "search"}, {"verb": "remove", "paths": 3}],
)
def test_a_wrong_question_is_answered(store: QdrantVectors, request_: Any) -> None:
    answer = VectorDesk(store, EMBEDDER, lambda _: nullcontext()).answer(request_)
    assert answer["code"] == "E4504"


def test_what_is_no_question_at_all(link: DaemonLink, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(tmp_path / "daemon.sock"))
        connection.sendall(b"\xff{\n")
        with connection.makefile("rb") as stream:
            assert json.loads(stream.readline())["code"] == "E4504"
    assert link.is_there()


def test_the_trouble_of_the_store_reaches_who_asked(
    link: DaemonLink, store: QdrantVectors, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> Any:
        raise IngestError("E4521", "no space left on device")

    monkeypatch.setattr(store, "collections", full)
    with pytest.raises(IngestError, match=r"E4521 .*no space left"):
        link.collections()


def test_nobody_there(tmp_path: Path) -> None:
    link = DaemonLink(tmp_path / "none.sock")
    assert not link.is_there()
    with pytest.raises(IngestError, match=r"E4521 .*does not answer"):
        link.collections()


def test_searching_while_files_are_stored(link: DaemonLink, store: QdrantVectors) -> None:
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

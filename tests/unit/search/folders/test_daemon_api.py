"""The socket of the folder daemon: message format, errors, permissions, and requests from several threads."""

from __future__ import annotations

import json
import socket
import stat
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from vedette.errors import FolderError, IngestError
from vedette.search.chunking import Chunk
from vedette.search.document import SourceSpan
from vedette.search.embedding import HashingEmbedder
from vedette.search.file_queue.tasks import FileOperation, FileTask
from vedette.search.folders.daemon_api import DaemonApi, DaemonClient, DaemonServer
from vedette.search.vectors.qdrant import QdrantStore
from vedette.search.vectors.store import FileVectors, VectorStore, remove_files
from vedette.testing import ManualClock
from vedette.testing.file_queue import MemoryFileQueue
from vedette.testing.vectors import MemoryVectorStore

EMBEDDER = HashingEmbedder(64)


class WatchRemoverDouble:
    def __init__(self, store: VectorStore) -> None:
        self._store = store

    def remove_watch(self, watch_id: str, collection: str, paths: Sequence[str]) -> int:
        assert watch_id == "w"
        return remove_files(self._store, collection, paths)


def api_for(store: VectorStore, queue: MemoryFileQueue | None = None) -> DaemonApi:
    return DaemonApi(WatchRemoverDouble(store), queue or MemoryFileQueue(ManualClock()), store, EMBEDDER)


def file(path: str, text: str) -> FileVectors:
    span = SourceSpan(start=1, end=2, unit="line")
    return FileVectors(
        path=path,
        watch_id="w",
        content_hash="h",
        embedder=EMBEDDER.name,
        chunks=[Chunk(text=text, span=span, title="Fruit")],
        vectors=EMBEDDER.embed([text]),
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[QdrantStore]:
    opened = QdrantStore(tmp_path / "vectors")
    opened.ensure_collection("docs", 64)
    opened.replace("docs", file("/a", "red apples"))
    yield opened
    opened.close()


@pytest.fixture
def client(tmp_path: Path, store: QdrantStore) -> Iterator[DaemonClient]:
    path = tmp_path / "daemon.sock"
    path.write_text("left by a killed daemon")
    with DaemonServer(path, api_for(store)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        yield DaemonClient(path)
    assert not path.exists()


def dead_letter(queue: MemoryFileQueue, path: str) -> None:
    queue.put([FileTask(path=path, watch_id="w", collection="c", operation=FileOperation.INGEST, priority=5)])
    (claim,) = queue.claim(1, "me")
    queue.nack(claim.claim_id, error="damaged", retry=False)


def test_search_collections_and_removal(client: DaemonClient, store: QdrantStore) -> None:
    assert client.is_running()
    (hit,) = client.search("docs", "apples that are red", 5)
    assert (hit.path, hit.start, hit.end, hit.text) == ("/a", 1, 2, "red apples")
    assert client.search("nowhere", "apples", 5) == []
    assert client.collections() == {"docs": 1}
    assert client.remove("w", "docs", ["/a", "/never"]) == 1
    assert store.count_by_collection() == {"docs": 0}


def test_golden_messages(tmp_path: Path) -> None:
    """The messages of version 1, key by key, as both sides send them."""
    store, clock = MemoryVectorStore(), ManualClock(datetime(2026, 1, 2, tzinfo=UTC))
    queue = MemoryFileQueue(clock)
    store.ensure_collection("docs", 64)
    store.replace("docs", file("/a", "red apples"))
    dead_letter(queue, "/b")
    dead_letter(queue, "/c")
    messages: list[tuple[object, dict[str, Any]]] = []

    class RecordingApi(DaemonApi):
        def handle(self, request: object) -> dict[str, Any]:
            answer = super().handle(request)
            messages.append((request, answer))
            return answer

    path = tmp_path / "daemon.sock"
    with DaemonServer(path, RecordingApi(WatchRemoverDouble(store), queue, store, EMBEDDER)):
        client = DaemonClient(path)
        client.search("docs", "red apples", 3)
        client.collections()
        assert client.retry_dead_letters("/b") == 1
        assert client.purge_dead_letters(clock.now() + timedelta(seconds=1)) == 1
        assert client.retry_dead_letters(None) == 0
        with pytest.raises(FolderError, match="E4505"):
            client.retry_dead_letters("/nothing")
        client.remove("w", "docs", ["/a"])
    hit = {
        "path": "/a",
        "start": 1,
        "end": 2,
        "unit": "line",
        "title": "Fruit",
        "text": "red apples",
        "score": pytest.approx(1.0),
    }
    assert messages == [
        (
            {"version": 1, "verb": "search", "collection": "docs", "text": "red apples", "limit": 3},
            {"hits": [hit]},
        ),
        ({"version": 1, "verb": "collections"}, {"collections": {"docs": 1}}),
        ({"version": 1, "verb": "retry", "path": "/b"}, {"count": 1}),
        ({"version": 1, "verb": "purge", "before": "2026-01-02T00:00:01.000Z"}, {"count": 1}),
        ({"version": 1, "verb": "retry", "path": None}, {"count": 0}),
        (
            {"version": 1, "verb": "retry", "path": "/nothing"},
            {"error": "no dead letter has the path /nothing", "code": "E4505"},
        ),
        (
            {"version": 1, "verb": "remove", "watch_id": "w", "collection": "docs", "paths": ["/a"]},
            {"removed": 1},
        ),
    ]


@pytest.mark.parametrize(
    "request_",
    [
        None,
        [],
        {},
        {"version": 1, "verb": "delete everything"},
        {"version": 1, "verb": "search"},
        {"version": 1, "verb": "remove", "paths": 3},
        {"version": 1, "verb": "purge", "before": "yesterday"},
        {"version": 2, "verb": "collections"},
        {"verb": "collections"},
    ],
)
def test_malformed_request_gets_an_error(store: QdrantStore, request_: Any) -> None:
    answer = api_for(store).handle(request_)
    assert answer["code"] == "E4504"


def test_line_that_is_not_json_gets_an_error(client: DaemonClient, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(tmp_path / "daemon.sock"))
        connection.sendall(b"\xff{\n")
        with connection.makefile("rb") as stream:
            assert json.loads(stream.readline())["code"] == "E4504"
    assert client.is_running()


def test_store_error_reaches_the_client(
    client: DaemonClient, store: QdrantStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> Any:
        raise IngestError("E4521", "no space left on device")

    monkeypatch.setattr(store, "count_by_collection", full)
    with pytest.raises(IngestError, match=r"E4521 .*no space left"):
        client.collections()


def test_client_without_a_daemon(tmp_path: Path) -> None:
    client = DaemonClient(tmp_path / "none.sock")
    assert not client.is_running()
    with pytest.raises(IngestError, match=r"E4521 .*does not answer"):
        client.collections()


def test_search_during_writes_sees_complete_files(client: DaemonClient, store: QdrantStore) -> None:
    """Three threads search while files are replaced and removed; each search sees the unchanged file."""
    failures: list[BaseException] = []

    def search() -> None:
        try:
            for _ in range(30):
                texts = {hit.text for hit in client.search("docs", "red apples", 10) if hit.path == "/a"}
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

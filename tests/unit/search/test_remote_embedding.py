"""The HTTP embedder, and sentence-transformers, which is not a dependency."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from vedette.errors import IngestError
from vedette.search.embedding import HashingEmbedder, create_embedder
from vedette.search.remote_embedding import HttpEmbedder

EMBEDDER = HashingEmbedder(16)


class Endpoint:
    """An embedding server. The test chooses what is wrong with its answers."""

    def __init__(self) -> None:
        self.requests: list[tuple[Any, str | None]] = []
        self.status = 200
        self.change_answer: Any = lambda answer: answer

    def answer(self, body: Any, key: str | None) -> Any:
        self.requests.append((body, key))
        rows = EMBEDDER.embed(body["input"]) * 3  # not of length 1
        data = [{"index": number, "embedding": row.tolist()} for number, row in enumerate(rows)]
        return self.change_answer({"data": data[::-1]})


@contextmanager
def serving(endpoint: Endpoint) -> Iterator[str]:
    class Connection(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            data = json.dumps(endpoint.answer(body, self.headers.get("Authorization"))).encode()
            self.send_response(endpoint.status)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Connection)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/embeddings#small"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_http_embedder() -> None:
    endpoint = Endpoint()
    with serving(endpoint) as address:
        embedder = HttpEmbedder(address, {"VEDETTE_EMBEDDER_KEY": "secret"})
        assert (embedder.name, embedder.dimensions) == ("small-16", 16)
        texts = [f"word{number} and another" for number in range(300)]
        assert np.allclose(embedder.embed(texts), EMBEDDER.embed(texts), atol=1e-5)
        assert embedder.embed([]).shape == (0, 16)
        assert np.isfinite(embedder.embed([""])).all()
        assert max(len(body["input"]) for body, _ in endpoint.requests) == 128
        assert {(body["model"], key) for body, key in endpoint.requests} == {("small", "Bearer secret")}
        assert create_embedder(address).name == "small-16"


@pytest.mark.parametrize(
    ("status", "change_answer", "words"),
    [
        (503, lambda answer: answer, "it answered 503"),
        (200, lambda _: {"error": "no such model"}, "KeyError"),
        (200, lambda _: ["?"], "TypeError"),
        (200, lambda answer: {"data": answer["data"][:1]}, "returned 1 vectors for 2 texts"),
        (200, lambda answer: {"data": [{"embedding": [1.0]} for _ in answer["data"]]}, "no longer have 16"),
    ],
)
def test_wrong_answer_of_the_server_is_an_error(status: int, change_answer: Any, words: str) -> None:
    endpoint = Endpoint()
    with serving(endpoint) as address:
        embedder = HttpEmbedder(address)
        endpoint.status, endpoint.change_answer = status, change_answer
        with pytest.raises(IngestError, match=rf"E4522 .*{words}"):
            embedder.embed(["a", "b"])


def test_server_that_does_not_run() -> None:
    with pytest.raises(IngestError, match=r"E4522 .*check that the server runs"):
        create_embedder("http://127.0.0.1:9/v1/embeddings")


def test_sentence_transformers_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(IngestError, match=r"E4522 .*install the package sentence-transformers"):
        create_embedder("sentence-transformers:all-MiniLM-L6-v2")


def test_sentence_transformers_model(monkeypatch: pytest.MonkeyPatch) -> None:
    class SentenceTransformer:
        def __init__(self, model: str) -> None:
            assert model == "tiny"

        def get_sentence_embedding_dimension(self) -> int:
            return 16

        def encode(self, texts: list[str], **options: Any) -> Any:
            assert options["normalize_embeddings"]
            return EMBEDDER.embed(texts)

    module = ModuleType("sentence_transformers")
    module.SentenceTransformer = SentenceTransformer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)
    embedder = create_embedder("sentence-transformers:tiny")
    assert (embedder.name, embedder.embed([]).shape) == ("tiny-16", (0, 16))
    assert np.allclose(embedder.embed(["a b"]), EMBEDDER.embed(["a b"]))

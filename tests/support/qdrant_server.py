"""A Qdrant server for tests: the used part of its HTTP interface, over the client's local mode in memory.

This tests the requests of the client and the handling of replies, not the storage of a real server.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any
from urllib.parse import urlsplit

from qdrant_client import QdrantClient, models

__all__ = ["QdrantServer", "qdrant_server"]


class QdrantServer:
    def __init__(self) -> None:
        self.client = QdrantClient(":memory:")
        self.requests: list[str] = []
        self.is_down = False
        """If true, every request is answered with 503."""
        self._lock = Lock()
        self._routes: list[tuple[str, str, Callable[[str, Any], Any]]] = [
            ("GET", r"/collections", self._collections),
            ("GET", r"/collections/([^/]+)/exists", self._exists),
            ("PUT", r"/collections/([^/]+)", self._create),
            ("GET", r"/collections/([^/]+)", lambda name, _: self.client.get_collection(name)),
            (
                "PUT",
                r"/collections/([^/]+)/index",
                lambda name, _: {"operation_id": 0, "status": "completed"},
            ),
            ("POST", r"/collections/([^/]+)/points/batch", self._batch),
            ("POST", r"/collections/([^/]+)/points/query", self._query),
            ("POST", r"/collections/([^/]+)/points/scroll", self._scroll),
            ("POST", r"/collections/([^/]+)/points/count", self._count),
            ("POST", r"/collections/([^/]+)/points", self._retrieve),
        ]

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        with self._lock:
            self.requests.append(f"{method} {path}")
            if self.is_down:
                return 503, {"status": {"error": "down for a test"}}
            for verb, pattern, act in self._routes:
                found = re.fullmatch(pattern, path)
                if found is not None and verb == method:
                    name = found.group(1) if found.groups() else ""
                    return 200, {"result": _plain(act(name, body)), "status": "ok", "time": 0.0}
        return 404, {"status": {"error": f"no {method} {path} in this test server"}}

    def _collections(self, _name: str, _body: Any) -> Any:
        return self.client.get_collections()

    def _exists(self, name: str, _body: Any) -> Any:
        return {"exists": self.client.collection_exists(name)}

    def _create(self, name: str, body: Any) -> Any:
        return self.client.create_collection(name, vectors_config=models.VectorParams(**body["vectors"]))

    def _batch(self, name: str, body: Any) -> Any:
        operations = [
            models.UpsertOperation(**each) if "upsert" in each else models.DeleteOperation(**each)
            for each in body["operations"]
        ]
        self.client.batch_update_points(name, operations)
        return [{"operation_id": number, "status": "completed"} for number in range(len(operations))]

    def _query(self, name: str, body: Any) -> Any:
        selected = body.get("filter")
        return self.client.query_points(
            name,
            query=body["query"]["nearest"],
            query_filter=models.Filter(**selected) if selected else None,
            limit=body["limit"],
            with_payload=True,
        )

    def _scroll(self, name: str, body: Any) -> Any:
        points, offset = self.client.scroll(name, limit=body["limit"], offset=body.get("offset"))
        return {"points": points, "next_page_offset": offset}

    def _count(self, name: str, _body: Any) -> Any:
        return self.client.count(name)

    def _retrieve(self, name: str, body: Any) -> Any:
        return self.client.retrieve(name, body["ids"])


@contextmanager
def qdrant_server() -> Iterator[tuple[str, QdrantServer]]:
    """Return the URL and the server object."""
    server = QdrantServer()

    class Listener(BaseHTTPRequestHandler):
        def _do(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            status, answer = server.answer(self.command, urlsplit(self.path).path, body)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = _do

        def log_message(self, *_: object) -> None:
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Listener)
    listener.daemon_threads = True
    thread = Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.server_port}", server
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return json.loads(value.model_dump_json()) if hasattr(value, "model_dump_json") else value

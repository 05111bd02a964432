"""JSON requests to the folder daemon on a Unix socket in the data directory.

Only one process can open a local vector store, and that is the daemon, so other processes search and delete through it.
Each connection has one request and one answer, each a JSON object on a line:

    {"verb": "search", "collection": …, "text": …, "limit": …}            {"hits": [{path, start, end, …, score}]}
    {"verb": "collections"}                                               {"collections": {name: chunks}}
    {"verb": "remove", "watch_id": …, "collection": …, "paths": […]}      {"removed": n}
    any request that fails                                                {"error": text, "code": "E4521"}

Only the owner of the data directory can connect (mode 0600).
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingUnixStreamServer
from threading import Thread
from typing import Any, Self

from vedette.errors import IngestError
from vedette.search.embedding import Embedder
from vedette.search.vectors.store import SearchHit, VectorStore, remove_files
from vedette.transport.unix_socket import socket_path

__all__ = ["DaemonApi", "DaemonClient", "DaemonServer", "connect_daemon", "daemon_socket"]

log = logging.getLogger(__name__)

_SOCKET_NAME = "daemon.sock"
_MAX_REQUEST = 64 * 1024 * 1024
_MAX_LIMIT = 10_000
_PATIENCE_SECONDS = 60.0


def daemon_socket(directory: Path) -> Path:
    """Return the socket of the daemon of a data directory."""
    return socket_path(directory, _SOCKET_NAME)


def connect_daemon(directory: Path) -> DaemonClient:
    """Return a client of the daemon of a data directory. The daemon need not run."""
    return DaemonClient(daemon_socket(directory))


class DaemonApi:
    """Handles the requests, without the socket."""

    def __init__(
        self, store: VectorStore, embedder: Embedder, forget: Callable[[str], AbstractContextManager[object]]
    ) -> None:
        """Inside `forget` nothing of that watch is processed (`FolderDaemon.remove_watch`)."""
        self._store, self._embedder, self._forget = store, embedder, forget
        self._verbs: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "search": self._search,
            "collections": self._collections,
            "remove": self._remove,
        }

    def handle(self, request: object) -> dict[str, Any]:
        try:
            if not isinstance(request, dict) or request.get("verb") not in self._verbs:
                raise IngestError("E4504", f"a daemon answers to {', '.join(self._verbs)}")
            return self._verbs[request["verb"]](request)
        except IngestError as error:
            return {"error": error.text, "code": error.code}
        except (KeyError, TypeError, ValueError) as error:
            return {"error": f"the request has a wrong form: {error!r}", "code": "E4504"}

    def _search(self, request: Mapping[str, Any]) -> dict[str, Any]:
        limit = min(int(request["limit"]), _MAX_LIMIT)
        (vector,) = self._embedder.embed([str(request["text"])])
        hits = self._store.search(str(request["collection"]), vector, self._embedder.name, limit)
        return {"hits": [asdict(hit) for hit in hits]}

    def _collections(self, _request: Mapping[str, Any]) -> dict[str, Any]:
        return {"collections": dict(self._store.count_by_collection())}

    def _remove(self, request: Mapping[str, Any]) -> dict[str, Any]:
        paths = [str(path) for path in request["paths"]]
        with self._forget(str(request["watch_id"])):
            return {"removed": remove_files(self._store, str(request["collection"]), paths)}


class DaemonServer:
    """Listens until it is closed."""

    def __init__(self, path: Path, desk: DaemonApi) -> None:
        class Listener(StreamRequestHandler):
            timeout = _PATIENCE_SECONDS

            def handle(self) -> None:
                with suppress(OSError):  # the client is gone
                    line = self.rfile.readline(_MAX_REQUEST)
                    self.wfile.write(json.dumps(desk.handle(_parsed(line))).encode() + b"\n")

        path.unlink(missing_ok=True)  # left by a killed daemon; only one process can have the vectors open
        before = os.umask(0o177)
        try:
            self._server = ThreadingUnixStreamServer(str(path), Listener)
        finally:
            os.umask(before)
        self._server.daemon_threads = True
        self._path = path
        self._thread = Thread(target=self._server.serve_forever, name="vedette-daemon-link", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class DaemonClient:
    """The client side: one connection per request."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def is_running(self) -> bool:
        """True if a daemon listens."""
        try:
            self._connected().close()
        except OSError:
            return False
        return True

    def search(self, collection: str, text: str, limit: int) -> list[SearchHit]:
        answer = self._request(verb="search", collection=collection, text=text, limit=limit)
        return [SearchHit(**hit) for hit in answer["hits"]]

    def collections(self) -> Mapping[str, int]:
        found: dict[str, int] = self._request(verb="collections")["collections"]
        return found

    def remove(self, watch_id: str, collection: str, paths: Sequence[str]) -> int:
        """Remove the chunks of a removed watch. Returns the number of files."""
        asked = self._request(verb="remove", watch_id=watch_id, collection=collection, paths=list(paths))
        return int(asked["removed"])

    def _request(self, **request: Any) -> dict[str, Any]:
        try:
            with self._connected() as connection, connection.makefile("rwb") as stream:
                stream.write(json.dumps(request).encode() + b"\n")
                stream.flush()
                answer: dict[str, Any] = json.loads(stream.readline())
        except (OSError, ValueError) as error:
            raise IngestError(
                "E4521",
                f"the daemon that holds the vectors does not answer ({error}): try again, or restart it",
                fields={"place": str(self._path)},
            ) from error
        if "error" in answer:
            raise IngestError(str(answer["code"]), str(answer["error"]))
        return answer

    def _connected(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(_PATIENCE_SECONDS)
            connection.connect(str(self._path))
        except BaseException:
            connection.close()
            raise
        return connection


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None

"""JSON requests to the folder daemon on a Unix socket in the data directory: server and client.

Only one process can open a local vector store or the file queue, and that is the daemon, so other processes search,
delete and retry through it. A connection carries one request and one answer. Each is a JSON object on one line:

    request, with "version": 1                                              answer
    {"verb": "search", "collection": …, "text": …, "limit": …}              {"hits": [{"path", "start", "end", "unit",
                                                                              "title", "text", "score"}, …]}
    {"verb": "collections"}                                                 {"collections": {name: chunks}}
    {"verb": "remove", "watch_id": …, "collection": …, "paths": […]}        {"removed": files}
    {"verb": "retry", "path": … or null for all}                            {"count": tasks}
    {"verb": "purge", "before": timestamp}                                  {"count": tasks}
    any request that fails                                                  {"error": text, "code": "E4521"}

A request of another version is refused with E4504. Only the owner of the data directory can connect (mode 0600).
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingUnixStreamServer
from threading import Thread
from typing import Any, Protocol, Self

from vedette.errors import FolderError, IngestError, VedetteError
from vedette.search.embedding import Embedder
from vedette.search.file_queue.tasks import FileQueue
from vedette.search.vectors.store import SearchHit, VectorStore
from vedette.transport.unix_socket import socket_path
from vedette.values import timestamp_from_text, timestamp_to_text

__all__ = ["DaemonApi", "DaemonClient", "DaemonServer", "WatchRemover", "connect_daemon", "daemon_socket"]

log = logging.getLogger(__name__)

MESSAGE_VERSION = 1
SOCKET_NAME = "daemon.sock"
MAX_REQUEST_BYTES = 64 * 1024 * 1024
MAX_HITS = 10_000
"""A search returns at most this many hits, whatever its limit."""
TIMEOUT_SECONDS = 60.0
"""Default limit for one read or write on the socket."""


def daemon_socket(directory: Path) -> Path:
    """Return the path of the daemon's socket for a data directory."""
    return socket_path(directory, SOCKET_NAME)


def connect_daemon(directory: Path, *, timeout_seconds: float = TIMEOUT_SECONDS) -> DaemonClient:
    """Return a client of the daemon of a data directory. The daemon need not run."""
    return DaemonClient(daemon_socket(directory), timeout_seconds=timeout_seconds)


class WatchRemover(Protocol):
    """The part of `FolderDaemon` that the API calls."""

    def remove_watch(self, watch_id: str, collection: str, paths: Sequence[str]) -> int: ...


class DaemonApi:
    """Translates requests into calls and results into answers. Any number of threads may call `handle`."""

    def __init__(
        self, daemon: WatchRemover, queue: FileQueue, store: VectorStore, embedder: Embedder
    ) -> None:
        self._daemon, self._queue, self._store, self._embedder = daemon, queue, store, embedder
        self._verbs: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "search": self._search,
            "collections": self._collections,
            "remove": self._remove,
            "retry": self._retry,
            "purge": self._purge,
        }

    def handle(self, request: object) -> dict[str, Any]:
        """Return the answer to a request. A request that fails is answered with the error; nothing is raised."""
        try:
            if not isinstance(request, dict) or request.get("verb") not in self._verbs:
                raise FolderError(
                    "E4504", f"unknown request to the folder daemon; its verbs are {', '.join(self._verbs)}"
                )
            if request.get("version") != MESSAGE_VERSION:
                raise FolderError(
                    "E4504",
                    f"the folder daemon understands requests of version {MESSAGE_VERSION}, not "
                    f"{request.get('version')}: restart the daemon so that it runs the version of this command",
                )
            return self._verbs[request["verb"]](request)
        except (FolderError, IngestError) as error:
            return {"error": error.text, "code": error.code}
        except (KeyError, TypeError, ValueError) as error:
            return {"error": f"malformed request to the folder daemon: {error!r}", "code": "E4504"}

    def _search(self, request: Mapping[str, Any]) -> dict[str, Any]:
        limit = min(int(request["limit"]), MAX_HITS)
        (vector,) = self._embedder.embed([str(request["text"])])
        hits = self._store.search(str(request["collection"]), vector, self._embedder.name, limit)
        return {"hits": [_encode_hit(hit) for hit in hits]}

    def _collections(self, _request: Mapping[str, Any]) -> dict[str, Any]:
        return {"collections": dict(self._store.count_by_collection())}

    def _remove(self, request: Mapping[str, Any]) -> dict[str, Any]:
        paths = [str(path) for path in request["paths"]]
        removed = self._daemon.remove_watch(str(request["watch_id"]), str(request["collection"]), paths)
        return {"removed": removed}

    def _retry(self, request: Mapping[str, Any]) -> dict[str, Any]:
        path = None if request["path"] is None else str(request["path"])
        count = self._queue.retry_dead_letters(path)
        self._queue.flush_view()  # the client may read the table next
        return {"count": count}

    def _purge(self, request: Mapping[str, Any]) -> dict[str, Any]:
        count = self._queue.purge_dead_letters(timestamp_from_text(str(request["before"])))
        self._queue.flush_view()
        return {"count": count}


class DaemonServer:
    """Listens on the socket from its creation until it is closed. Each connection has a thread."""

    def __init__(self, path: Path, api: DaemonApi) -> None:
        class Connection(StreamRequestHandler):
            timeout = TIMEOUT_SECONDS

            def handle(self) -> None:
                with suppress(OSError):  # the client has closed the connection
                    line = self.rfile.readline(MAX_REQUEST_BYTES)
                    self.wfile.write(json.dumps(api.handle(_decode_request(line))).encode() + b"\n")

        # A killed daemon leaves its socket. No other daemon can be running: it would have the file queue open.
        path.unlink(missing_ok=True)
        previous_umask = os.umask(0o177)
        try:
            self._server = ThreadingUnixStreamServer(str(path), Connection)
        finally:
            os.umask(previous_umask)
        self._server.daemon_threads = True
        self._path = path
        self._thread = Thread(target=self._server.serve_forever, name="vedette-daemon-api", daemon=True)
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
    """Sends requests to the daemon, each on a connection of its own.

    Every method except `is_running` raises E4521 if the daemon does not answer, and the daemon's error if it refuses.
    """

    def __init__(self, path: Path, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._path, self._timeout_seconds = path, timeout_seconds

    def is_running(self) -> bool:
        """Return True if a daemon listens on the socket."""
        try:
            self._connect().close()
        except OSError:
            return False
        return True

    def search(self, collection: str, text: str, limit: int) -> list[SearchHit]:
        answer = self._request(verb="search", collection=collection, text=text, limit=limit)
        return [_decode_hit(hit) for hit in answer["hits"]]

    def collections(self) -> Mapping[str, int]:
        """Return the number of chunks by collection."""
        counts: dict[str, int] = self._request(verb="collections")["collections"]
        return counts

    def remove(self, watch_id: str, collection: str, paths: Sequence[str]) -> int:
        """Remove the tasks of a removed watch and the chunks of these files. Return the number of files."""
        answer = self._request(verb="remove", watch_id=watch_id, collection=collection, paths=list(paths))
        return int(answer["removed"])

    def retry_dead_letters(self, path: str | None) -> int:
        """Call `QueueAdmin.retry_dead_letters` of the daemon's queue."""
        return int(self._request(verb="retry", path=path)["count"])

    def purge_dead_letters(self, before: datetime) -> int:
        """Call `QueueAdmin.purge_dead_letters` of the daemon's queue."""
        return int(self._request(verb="purge", before=timestamp_to_text(before))["count"])

    def _request(self, **request: Any) -> dict[str, Any]:
        try:
            with self._connect() as connection, connection.makefile("rwb") as stream:
                stream.write(json.dumps({"version": MESSAGE_VERSION, **request}).encode() + b"\n")
                stream.flush()
                answer: dict[str, Any] = json.loads(stream.readline())
        except (OSError, ValueError) as error:
            raise IngestError(
                "E4521",
                f"the folder daemon does not answer ({error}): try again, or restart it",
                fields={"place": str(self._path)},
            ) from error
        if "error" in answer:
            raise _decode_error(answer)
        return answer

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(self._timeout_seconds)
            connection.connect(str(self._path))
        except BaseException:
            connection.close()
            raise
        return connection


def _decode_request(line: bytes) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _decode_error(answer: Mapping[str, Any]) -> VedetteError:
    code, text = str(answer["code"]), str(answer["error"])
    return FolderError(code, text) if code < "E4510" else IngestError(code, text)


def _encode_hit(hit: SearchHit) -> dict[str, Any]:
    return {
        "path": hit.path,
        "start": hit.start,
        "end": hit.end,
        "unit": hit.unit,
        "title": hit.title,
        "text": hit.text,
        "score": hit.score,
    }


def _decode_hit(fields: Mapping[str, Any]) -> SearchHit:
    return SearchHit(
        path=fields["path"],
        start=fields["start"],
        end=fields["end"],
        unit=fields["unit"],
        title=fields["title"],
        text=fields["text"],
        score=fields["score"],
    )

"""A proxy between psycopg and PostgreSQL that can cut the connection around a COMMIT."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Literal
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

__all__ = ["Cut", "PostgresProxy"]

Cut = Literal["before", "after"]
"""When to cut: before the server receives COMMIT, or after it committed and before the client gets the reply."""


class PostgresProxy:
    """Listens on a socket in its own directory. `cut_next` cuts the connection at the next COMMIT."""

    def __init__(self, url: str) -> None:
        target = conninfo_to_dict(url)
        self._server = f"{target['host']}/.s.PGSQL.5432"
        self._database, self._user = target["dbname"], target["user"]
        self._folder = tempfile.TemporaryDirectory(prefix="vedette-proxy-", dir="/tmp")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{self._folder.name}/.s.PGSQL.5432")
        self._listener.listen()
        self.cut_next: Cut | None = None
        self.was_cut = Event()

    @property
    def url(self) -> str:
        return f"postgresql://{self._user}@/{self._database}?host={quote(self._folder.name, safe='')}"

    @contextmanager
    def running(self) -> Iterator[PostgresProxy]:
        Thread(target=self._accept, daemon=True).start()
        try:
            yield self
        finally:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._folder.cleanup()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(str(Path(self._server)))
                Thread(target=self._upstream, args=(client, server), daemon=True).start()
                Thread(target=self._pump, args=(server, client), daemon=True).start()

    def _upstream(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(65_536):
                cut = self.cut_next if b"COMMIT" in data else None
                if cut is not None:
                    self.cut_next = None
                    client.shutdown(socket.SHUT_RDWR)  # stop forwarding to the client
                if cut != "before":
                    server.sendall(data)
                if cut is not None:
                    break
        with suppress(OSError):
            # the server finishes the statements it received, then sees the end of the connection
            server.shutdown(socket.SHUT_WR)
        self.was_cut.set()

    def _pump(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(65_536):
                client.sendall(data)
        for end in (server, client):
            with suppress(OSError):
                end.close()

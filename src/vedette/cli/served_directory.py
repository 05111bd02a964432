"""A data directory that a running server has open, for commands on the same machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from vedette.client.blocking import BlockingSession, BlockingWatch, connect_sync
from vedette.clock import SystemClock
from vedette.engine.context.result import Result
from vedette.errors import PolicyError
from vedette.language.parser import parse_declarations
from vedette.language.schema.extend import extend_schema
from vedette.language.schema.layer0 import layer0_schema
from vedette.language.schema.model import Schema
from vedette.processes.server_file import ServerFile
from vedette.transport.secret import load_or_create_secret

__all__ = ["ServedDatabase", "ServedDirectory", "ServedSession", "ServedWatch"]


class ServedDirectory:
    """The part of `Vedette` that commands use, over the local socket of a running server."""

    def __init__(self, directory: Path, server: ServerFile) -> None:
        self.location = str(directory)
        self.clock = SystemClock()
        self._server = server
        self._token = load_or_create_secret(directory).hex()
        self._databases: dict[str, ServedDatabase] = {}

    def connect(self, database: str) -> BlockingSession:
        return connect_sync(
            "ws://localhost", database=database, token=self._token, local_socket=self._server.local_socket
        )

    def databases(self) -> list[str]:
        return [str(name) for name in self.database("default").describe()["databases"]]

    def database(self, name: str) -> ServedDatabase:
        known = self._databases.get(name)
        if known is None:
            known = self._databases[name] = ServedDatabase(self, name)
        return known

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for database in self._databases.values():
            database.close()


class ServedDatabase:
    """A database of the server. The schema is built here from the server's declarations."""

    def __init__(self, directory: ServedDirectory, name: str) -> None:
        self._directory = directory
        self.name = name
        self._own = directory.connect(name)
        self._sessions: list[ServedSession] = []
        self._known: tuple[list[str], Schema] | None = None

    def describe(self) -> dict[str, Any]:
        """Return the declarations of this database and the names of all databases."""
        return self._own.define("")

    @property
    def schema(self) -> Schema:
        texts = list(self.describe()["definitions"])
        if self._known is None or self._known[0] != texts:
            schema = layer0_schema()
            for text in texts:
                schema = extend_schema(schema, parse_declarations(text), text)
            self._known = (texts, schema)
        return self._known[1]

    def define(self, text: str) -> None:
        self._own.define(text)

    def session(self, actor: str | None = None) -> ServedSession:
        session = ServedSession(self, self._directory.connect(self.name), actor)
        self._sessions.append(session)
        return session

    def close(self) -> None:
        for session in self._sessions:
            session.close()
        self._own.close()


class ServedSession:
    """A session of the server. BEGIN SESSION AS sets the actor."""

    def __init__(self, database: ServedDatabase, session: BlockingSession, actor: str | None) -> None:
        self.database = database
        self.actor = actor
        self.transaction = None
        """Always None: only the server knows about an open transaction."""
        self.bindings: dict[str, str] = {}
        self._session = session
        self._closed = False
        if actor is not None:
            try:
                session.execute("BEGIN SESSION AS #$actor", actor=actor)
            except BaseException:
                session.close()
                raise

    def execute(self, text: str, params: Mapping[str, Any] | None = None, /, **named: Any) -> Result:
        return self._session.execute(text, params, **named)

    def watch(self, text: str, params: Mapping[str, Any] | None = None, /, **named: Any) -> ServedWatch:
        if self.actor is not None:
            raise PolicyError(
                "E7001", "a watch of an actor cannot use the local socket; connect with a token"
            )
        return ServedWatch(self._session.watch(text, params, exclusive=True, **named))

    def attach(self, handle_or_name: str) -> ServedWatch:
        return ServedWatch(self._session.attach(handle_or_name))

    def errors(self) -> list[Any]:
        return self._session.errors()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ServedWatch(BlockingWatch):
    """A watch of the server. `id` is the handle that statements such as PAUSE WATCH accept."""

    def __init__(self, watch: BlockingWatch) -> None:
        self.__dict__.update(watch.__dict__)

    @property
    def id(self) -> str:
        return self.handle or super().id

    @property
    def lasts(self) -> bool:
        return self._watch.delivery == "reliable"

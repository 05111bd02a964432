"""On whose behalf something is read: a session, or an actor without one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from vedette.engine.context.open_transaction import OpenTransaction
    from vedette.engine.database import Database

__all__ = ["DetachedViewer", "Viewer"]


class Viewer(Protocol):
    """A session, or a substitute with its actor."""

    @property
    def database(self) -> Database: ...
    @property
    def transaction(self) -> OpenTransaction | None: ...
    @property
    def actor(self) -> str | None: ...
    @property
    def id(self) -> str | None: ...
    @property
    def bindings(self) -> Mapping[str, str]: ...


class DetachedViewer:
    """A viewer without a session: a database and an actor, or the system context."""

    transaction = None

    def __init__(self, database: Database, actor: str | None) -> None:
        self.database = database
        self.actor = actor
        self.id = None
        self.bindings: dict[str, str] = {}

"""Stands for a session where there is none: of a watch that outlived its own, or that is looked at from outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from vedette.engine.context.open_transaction import OpenTransaction
    from vedette.engine.database import Database

__all__ = ["DetachedViewer", "Viewer"]


class Viewer(Protocol):
    """Whom something is looked at for: a session, or what stands for one."""

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
    """What compiling and looking need of a session: a database, and an actor or none."""

    transaction = None

    def __init__(self, database: Database, actor: str | None) -> None:
        self.database = database
        self.actor = actor
        self.id = None
        self.bindings: dict[str, str] = {}

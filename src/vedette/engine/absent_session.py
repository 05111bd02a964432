"""Stands for a session where there is none: of a watch that outlived its own, or that is looked at from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vedette.engine.database import Database

__all__ = ["AbsentSession"]


class AbsentSession:
    """What compiling and looking need of a session: a database, and an actor or none."""

    transaction = None

    def __init__(self, database: Database, actor: str | None) -> None:
        self.database = database
        self.actor = actor
        self.id = None
        self.bindings: dict[str, str] = {}

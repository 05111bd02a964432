"""One statement on its way through the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vedette.engine.prepare import Prepared
from vedette.language.statements import Statement
from vedette.values import Value

if TYPE_CHECKING:
    from vedette.engine.database import Database
    from vedette.engine.session import Session

__all__ = ["Request"]


@dataclass(frozen=True, slots=True)
class Request:
    session: Session
    prepared: Prepared
    constants: tuple[Value, ...]
    """The text's literals, then the parameters."""
    text: str
    """As the user wrote it: places in errors point into it."""

    @property
    def database(self) -> Database:
        return self.session.database

    @property
    def signature(self) -> tuple[type, ...]:
        return tuple(map(type, self.constants))

    def about(self, statement: Statement) -> Request:
        """The same request for a statement inside this one: what EXPLAIN explains."""
        inner = Prepared(statement, self.prepared.literals, self.prepared.source)
        inner.parameters = self.prepared.parameters
        return Request(self.session, inner, self.constants, self.text)

    def executable(self) -> Any:
        """The compiled statement; call with the database's turn held."""
        return self.session.executable(self.prepared, self.constants, self.text)

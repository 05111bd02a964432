"""One statement during its execution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vedette.engine.context.prepared import PreparedStatement
from vedette.errors import AnalysisError
from vedette.language.syntax.expressions import Expression, IdReference, Literal, Parameter
from vedette.language.syntax.statements import Statement
from vedette.values import Value

if TYPE_CHECKING:
    from vedette.engine.database import Database
    from vedette.engine.session.session import Session

__all__ = ["StatementRequest", "resolve_id"]


@dataclass(frozen=True, slots=True)
class StatementRequest:
    session: Session
    prepared: PreparedStatement
    constants: tuple[Value, ...]
    """The text's literals, then the parameters."""
    text: str
    """The text as written. Positions in errors refer to it."""

    @property
    def database(self) -> Database:
        return self.session.database

    @property
    def signature(self) -> tuple[type, ...]:
        return tuple(map(type, self.constants))

    def for_inner(self, statement: Statement) -> StatementRequest:
        """The same request for a statement nested in this one, such as that of EXPLAIN."""
        inner = PreparedStatement(statement, self.prepared.literals, self.prepared.source)
        inner.parameters = self.prepared.parameters
        return StatementRequest(self.session, inner, self.constants, self.text)

    def executable(self) -> Any:
        """The compiled statement. Call with the engine lock held."""
        return self.session.executable(self.prepared, self.constants, self.text)


def resolve_id(request: StatementRequest, expression: Expression) -> str:
    """The id that a string, a parameter or `#id` denotes.

    A name bound in the session denotes what it is bound to.
    """
    if isinstance(expression, IdReference):
        name = expression.name
        if isinstance(name, str):
            return name if expression.quoted else request.session.bindings.get(name, name)
        expression = name
    value: Any = None
    if isinstance(expression, Parameter):
        value = request.constants[
            request.prepared.literals + request.prepared.parameters.index(expression.name)
        ]
    elif isinstance(expression, Literal):
        value = (
            request.constants[expression.literal_index]
            if expression.literal_index is not None
            else expression.value
        )
    if not isinstance(value, str):
        raise AnalysisError("E2003", f"A String with an id is required here, not {value!r}")
    return value

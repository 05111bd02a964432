"""The state of the resolver while it analyses one statement: registers, scopes, diagnostics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from vedette.errors import (
    AnalysisError,
    ConstraintViolation,
    MutationError,
    PatternError,
    TimeError,
    VedetteError,
)
from vedette.language.diagnostics import Diagnostic, DiagnosticCollector, Span
from vedette.language.resolve.tree import VariableRef
from vedette.language.schema.model import Schema
from vedette.language.types import Type

__all__ = ["QUERY_SITE", "AnalysisContext", "ExpressionSite", "Scope"]

_ERROR_CLASSES: dict[str, type[VedetteError]] = {
    "E30": ConstraintViolation,
    "E31": PatternError,
    "E36": MutationError,
    "E90": TimeError,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpressionSite:
    """The position of an expression, which decides the functions and names that it may use.

    docs/reference/language/expressions.md#who-is-asking lists the functions.
    """

    allows_actor: bool = True
    """current_actor() and current_session() are allowed."""
    allows_policy_target: bool = False
    """operation(), target(), target_type() and target_attr() are allowed."""
    allows_clock: bool = True
    """now() and wall_time() are allowed."""
    allows_session_bindings: bool = False
    """A name that no pattern declares is a name bound in the session."""


QUERY_SITE = ExpressionSite()
MAX_STATEMENT_DIAGNOSTICS = 50
"""Errors that are reported for one statement; later ones are dropped."""


@dataclass(slots=True)
class AnalysisContext:
    """The registers and diagnostics of one statement."""

    schema: Schema
    source: str
    constant_types: Sequence[Type] = ()
    """Types of an execution's constants: first the extracted literals, then the parameters."""
    parameter_indexes: dict[str, int] = field(default_factory=dict)
    """Index among the constants, by parameter name."""
    literals_extracted: bool = False
    """True if the literals are constants of the execution; False if their values are part of the resolved tree."""
    uses_layer0: bool = False
    """True if the statement reads Layer 0, whose elements are not stored in the graph."""
    register_count: int = 1
    """Number of registers in use; register 0 holds the execution context."""
    diagnostics: DiagnosticCollector = field(init=False)

    def __post_init__(self) -> None:
        self.diagnostics = DiagnosticCollector(self.source, MAX_STATEMENT_DIAGNOSTICS)

    def allocate_register(self) -> int:
        self.register_count += 1
        return self.register_count - 1

    def report(self, code: str, message: str, span: Span) -> None:
        self.diagnostics.report(code, message, span)

    def raise_if_any(self) -> None:
        """Raise one error that carries every diagnostic in the order of the text, if there are any."""
        self.diagnostics.raise_first(_analysis_error, sort=True)


def _analysis_error(diagnostics: Sequence[Diagnostic]) -> VedetteError:
    first = diagnostics[0]
    error_class = _ERROR_CLASSES.get(first.code[:3], AnalysisError)
    return error_class(first.code, first.message, diagnostics=diagnostics)


@dataclass(slots=True)
class Scope:
    """The visible variables. A nested pattern has a scope of its own, which includes the outer one."""

    analysis: AnalysisContext
    outer: Scope | None = None
    variables: dict[str, VariableRef] = field(default_factory=dict)
    binds_optional: bool = False
    """True if variables that are bound here may be null: those of an OPTIONAL MATCH."""

    def lookup(self, name: str) -> VariableRef | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.variables:
                return scope.variables[name]
            scope = scope.outer
        return None

    def bind(self, name: str, type_: Type) -> VariableRef:
        """Add a variable in a new register."""
        variable = VariableRef(self.analysis.allocate_register(), name, type_, self.binds_optional)
        self.variables[name] = variable
        return variable

    def child(self) -> Scope:
        """Return a scope for a nested pattern."""
        return Scope(self.analysis, self)

    def as_optional(self) -> Scope:
        """Return this scope for the pattern of an OPTIONAL MATCH: the same variables, and new ones may be null."""
        return Scope(self.analysis, self.outer, self.variables, binds_optional=True)

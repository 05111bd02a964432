"""What the resolver keeps while it walks one statement: registers, variables in sight, and the mistakes found."""

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

_CLASSES: dict[str, type[VedetteError]] = {
    "E30": ConstraintViolation,
    "E31": PatternError,
    "E36": MutationError,
    "E90": TimeError,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpressionSite:
    """Where an expression stands, as far as it decides what may be said there (spec/language.md §2.10.3)."""

    actor: bool = True
    """current_actor() and current_session() may be used."""
    policy: bool = False
    """operation(), target() and their kin may be used."""
    clock: bool = True
    """now() and wall_time() may be used."""
    bindings: bool = False
    """A name that no pattern binds may be a session binding."""


QUERY_SITE = ExpressionSite()
MAX_STATEMENT_DIAGNOSTICS = 50
"""How many mistakes of one statement are shown."""


@dataclass(slots=True)
class AnalysisContext:
    """One statement's registers and diagnostics."""

    schema: Schema
    source: str
    constant_types: Sequence[Type] = ()
    """Types of the literals, then of the parameters, that an execution brings."""
    parameter_indexes: dict[str, int] = field(default_factory=dict)
    """Parameter name ▸ its index among the constants."""
    literals_extracted: bool = False
    """Whether literals were lifted out of the text: then they are constants, else part of the shape."""
    uses_layer0: bool = False
    """Whether anything in the statement is of the engine's own types, which no graph holds."""
    register_count: int = 1
    """Registers in use; register 0 is the context."""
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
    error_class = _CLASSES.get(first.code[:3], AnalysisError)
    return error_class(first.code, first.message, diagnostics=diagnostics)


@dataclass(slots=True)
class Scope:
    """Variables in sight. A nested pattern has its own scope and sees the outer one."""

    analysis: AnalysisContext
    outer: Scope | None = None
    variables: dict[str, VariableRef] = field(default_factory=dict)

    def lookup(self, name: str) -> VariableRef | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.variables:
                return scope.variables[name]
            scope = scope.outer
        return None

    def bind(self, name: str, type_: Type, *, optional: bool = False) -> VariableRef:
        register = VariableRef(self.analysis.allocate_register(), name, type_, optional)
        self.variables[name] = register
        return register

    def child(self) -> Scope:
        return Scope(self.analysis, self)

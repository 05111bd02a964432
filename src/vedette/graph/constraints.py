"""Declared constraints: the condition must hold for every match of the pattern.

At commit only the matches that the changes can affect are checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vedette.errors import ConstraintViolation
from vedette.language.compile.affected_matches import AffectedMatchFinder
from vedette.language.compile.execution_context import ExecutionContext, Row
from vedette.language.compile.expressions import CompiledExpression
from vedette.language.compile.patterns import PatternCompiler
from vedette.language.compile.union_view import ElementChange
from vedette.language.plan.steps import PlanContext
from vedette.language.resolve.patterns import PatternResolver
from vedette.language.resolve.scope import AnalysisContext, ExpressionSite, Scope
from vedette.language.syntax.declarations import ConstraintDeclaration

__all__ = ["Constraint", "check_constraints", "compile_constraint"]

_WHERE = ExpressionSite(allows_actor=False)
_CONDITION = ExpressionSite(allows_actor=False, allows_clock=False)


@dataclass(frozen=True, slots=True)
class Constraint:
    name: str
    soft: bool
    message: str
    matches: AffectedMatchFinder
    condition: CompiledExpression

    def violated_by(self, row: Row) -> bool:
        return self.condition(row) is not True

    def describe(self, row: Row, *, named: bool = True) -> str:
        """The violation text. `named`: include the ids of the match, for readers that may see all of them."""
        ids = f" ({', '.join(self.matches.identity_of(row))})" if named else ""
        return f"Constraint '{self.name}' violated: {self.message}{ids}"


def compile_constraint(
    declaration: ConstraintDeclaration, context: PlanContext, source: str = ""
) -> Constraint:
    """Resolve and compile a constraint. Errors in the declaration are raised here, at `define`."""
    analysis = AnalysisContext(context.schema, source)
    scope = Scope(analysis)
    resolver = PatternResolver(analysis, _WHERE)
    pattern = resolver.resolve_pattern(declaration.pattern, declaration.where, scope)
    with resolver.at_site(_CONDITION):
        condition = resolver.resolve_condition(declaration.condition, scope)
    analysis.raise_if_any()
    assert condition is not None
    compiler = PatternCompiler(context)
    return Constraint(
        declaration.name,
        declaration.soft,
        declaration.message or "the condition does not hold",
        AffectedMatchFinder(pattern, (condition,), compiler, analysis.register_count),
        compiler.compile_expression(condition),
    )


def check_constraints(
    constraints: Sequence[Constraint],
    context: ExecutionContext,
    changes: Sequence[ElementChange],
    *,
    named: bool = True,
) -> list[str]:
    """Raise for the first hard violation; return warnings for soft ones. Without `named`, texts contain no ids."""
    warnings = []
    types = {(after or before).type for before, after in changes}  # type: ignore[union-attr]
    for constraint in constraints:
        if not constraint.matches.is_affected_by_types(types):
            continue
        for row in constraint.matches.find(context, changes):
            if not constraint.violated_by(row):
                continue
            if not constraint.soft:
                fields: dict[str, object] = {"constraint": constraint.name}
                if named:
                    fields["match"] = constraint.matches.identity_of(row)
                raise ConstraintViolation("E3001", constraint.describe(row, named=named), fields=fields)
            warnings.append(constraint.describe(row, named=named))
    return warnings

"""Document filters: a tree from `cel.py` or `filters.py`, compiled once, asked about one change after the other.

    compiled = compile_filter(parse_cel("doc.total > 100"))
    compiled.matches(Environment(doc={"total": 120}))

A filter is pure: the same environment always gives the same answer, and time comes only from the request.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from vedette.errors import FilterError
from vedette.filters.evaluator import Evaluator, compile_evaluator
from vedette.filters.inputs import FilterInput, FilterOutcome, MeteredInput, StepLimitExceeded
from vedette.filters.limits import DEFAULT_FILTER_LIMITS, FilterLimits, check_limits
from vedette.filters.operators import EvaluationError
from vedette.language.syntax.expressions import Expression
from vedette.values import Value

__all__ = ["DocumentFilter", "compile_filter"]


@dataclass(frozen=True, slots=True)
class DocumentFilter:
    """A compiled filter. It holds no state between evaluations and may be shared by threads."""

    expression: Expression
    _run: Evaluator = field(repr=False, compare=False)
    _steps: int | None = field(repr=False, compare=False)
    """The steps left for work that depends on the document; None when there is no such work."""

    def matches(self, environment: FilterInput) -> bool:
        """Whether the filter is true; an error is no match."""
        try:
            return (
                self._run(environment if self._steps is None else MeteredInput(environment, self._steps))
                is True
            )
        except (EvaluationError, StepLimitExceeded):
            return False

    def outcome(self, environment: FilterInput) -> FilterOutcome:
        """Like `matches`, but tells apart what is false and what could not be evaluated. Never raises."""
        try:
            value = self._value(environment)
        except (EvaluationError, StepLimitExceeded):
            return FilterOutcome.FAILED
        if value is True:
            return FilterOutcome.MATCH
        return FilterOutcome.NO_MATCH if value is False else FilterOutcome.FAILED

    def evaluate(self, environment: FilterInput) -> Value:
        """The value of the expression, of whatever kind; raises FilterError E1203 when it has none."""
        try:
            return self._value(environment)
        except EvaluationError as fault:
            raise FilterError("E1203", str(fault)) from None
        except StepLimitExceeded:
            raise FilterError("E1203", "the filter takes more steps on this document than it may") from None

    def _value(self, environment: FilterInput) -> Value:
        value: Value = self._run(
            environment if self._steps is None else MeteredInput(environment, self._steps)
        )
        return value


def compile_filter(expression: Expression, *, limits: FilterLimits = DEFAULT_FILTER_LIMITS) -> DocumentFilter:
    """Compile a tree of either front end, or one made by hand; raises FilterError E1201 or E1202."""
    measured = check_limits(expression, limits)
    program = compile_evaluator(expression)
    return DocumentFilter(
        expression, program.run, limits.cost_steps - measured.cost_steps if program.metered else None
    )

"""Compiled document filters.

    compiled = compile_filter(parse_cel("doc.total > 100"))
    compiled.matches(FilterInput(doc={"total": 120}))

A filter is pure: the same input always gives the same answer. It reads the time only from the request.
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
    """A compiled filter. It keeps no state between evaluations, so threads may share it."""

    expression: Expression
    _run: Evaluator = field(repr=False, compare=False)
    _steps: int | None = field(repr=False, compare=False)
    """Steps that one evaluation may spend on work that depends on the document; None if there is no such work."""

    def matches(self, inputs: FilterInput) -> bool:
        """True if the filter is true. An evaluation error counts as no match."""
        try:
            return self._run(inputs if self._steps is None else MeteredInput(inputs, self._steps)) is True
        except (EvaluationError, StepLimitExceeded):
            return False

    def outcome(self, inputs: FilterInput) -> FilterOutcome:
        """Like `matches`, but distinguishes false from an evaluation error. Never raises."""
        try:
            value = self._value(inputs)
        except (EvaluationError, StepLimitExceeded):
            return FilterOutcome.FAILED
        if value is True:
            return FilterOutcome.MATCH
        return FilterOutcome.NO_MATCH if value is False else FilterOutcome.FAILED

    def evaluate(self, inputs: FilterInput) -> Value:
        """Return the value of the expression; raises FilterError E1203 if the evaluation fails."""
        try:
            return self._value(inputs)
        except EvaluationError as error:
            raise FilterError("E1203", str(error)) from None
        except StepLimitExceeded:
            raise FilterError(
                "E1203", "the filter needs more steps for this document than its limit allows"
            ) from None

    def _value(self, inputs: FilterInput) -> Value:
        value: Value = self._run(inputs if self._steps is None else MeteredInput(inputs, self._steps))
        return value


def compile_filter(expression: Expression, *, limits: FilterLimits = DEFAULT_FILTER_LIMITS) -> DocumentFilter:
    """Compile an expression tree; raises FilterError E1201 (not supported) or E1202 (too large)."""
    measured = check_limits(expression, limits)
    program = compile_evaluator(expression)
    return DocumentFilter(
        expression, program.run, limits.cost_steps - measured.cost_steps if program.metered else None
    )

"""Evaluates watch options and ALTER WATCH."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vedette.engine.context.prepared import MISSING
from vedette.errors import WatchError
from vedette.language.compile.execution_context import ExecutionContext
from vedette.language.compile.patterns import PatternCompiler
from vedette.language.parser import parse_expression
from vedette.language.printer import print_statement
from vedette.language.resolve.patterns import PatternResolver
from vedette.language.resolve.scope import ExpressionSite, Scope
from vedette.language.syntax import statements as ast
from vedette.language.syntax.expressions import Expression, Literal, Parameter
from vedette.language.syntax.visit import transform
from vedette.watch.options import (
    ALTERABLE_OPTIONS,
    OPTION_READERS,
    WatchOptions,
    invalid_option,
    read_options,
)

if TYPE_CHECKING:
    from vedette.engine.context.request import StatementRequest

__all__ = ["altered_options", "option_evaluator", "parse_stored_filter", "with_option"]


def option_evaluator(request: StatementRequest) -> Callable[[Expression], Any]:
    """Return a function that evaluates option expressions with the constants of the statement."""

    def value(expression: Expression) -> Any:
        if isinstance(expression, Literal):
            return (
                request.constants[expression.literal_index]
                if expression.literal_index is not None
                else expression.value
            )
        state = request.database.state
        analysis = request.prepared.analysis_context(request.signature, state.schema)
        resolved = PatternResolver(analysis, ExpressionSite(allows_actor=False)).resolve(
            expression, Scope(analysis)
        )
        analysis.raise_if_any()
        context = ExecutionContext(
            view=state.graph, constants=request.constants, now=request.database.clock.now
        )
        return PatternCompiler(state.plan_context).compile_expression(resolved)([context])

    return value


def altered_options(
    request: StatementRequest, options: WatchOptions, given: Sequence[ast.WatchOption]
) -> WatchOptions:
    """The options after ALTER WATCH. An option that cannot be altered raises E8008."""
    for option in given:
        if option.name not in OPTION_READERS:
            raise invalid_option(
                option.name, f"there is no such option; allowed are {', '.join(sorted(ALTERABLE_OPTIONS))}"
            )
        if option.name not in ALTERABLE_OPTIONS:
            text = f"Option '{option.name}' cannot be changed after watch creation"
            raise WatchError("E8008", text, fields={"option": option.name})
    altered = read_options(given, option_evaluator(request), options)
    if any(option.name == "filter" for option in given) and altered.filter is not None:
        altered = replace(altered, filter=_inline_constants(request, altered.filter))
    if (
        altered.delivery == "reliable"
        and altered.on_full == "drop"
        and any(o.name == "on_full" for o in given)
    ):
        raise invalid_option("on_full", "a reliable watch never drops")
    return altered


def with_option(text: str, statement: ast.Watch, name: str, word: str) -> str:
    """The text of a WATCH with one more option, unless it is given already.

    Constants and parameters do not change.
    """
    if any(option.name == name for option in statement.options):
        return text
    option = ast.WatchOption(name, ast.OptionValue(word))
    return print_statement(replace(statement, options=(*statement.options, option)))


def parse_stored_filter(text: str) -> Expression:
    """Parse a stored filter. Its literals are values, not constants of a statement."""

    def change(node: Any) -> Any:
        return Literal(node.value, span=node.span) if isinstance(node, Literal) else None

    changed: Expression = transform(parse_expression(text), change)
    return changed


def _inline_constants(request: StatementRequest, expression: Expression) -> Expression:
    """The expression with the constants of the ALTER statement inlined, because they are not the watch's."""

    def change(node: Any) -> Any:
        if isinstance(node, Literal) and node.literal_index is not None:
            return Literal(request.constants[node.literal_index], span=node.span)
        if isinstance(node, Parameter):
            index = request.prepared.literals + request.prepared.parameters.index(node.name)
            value = request.constants[index]
            return Literal(None if value is MISSING else value, span=node.span)
        return None

    changed: Expression = transform(expression, change)
    return changed

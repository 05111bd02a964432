"""Compile resolved expressions into closures that take a row and return a value.

Theory of operation. There is one function per node class; it compiles the children and returns a closure. The closure
is chosen by static type where the type is known, so that evaluating a row needs a few calls and no dispatch.

Null (docs/reference/language/expressions.md#null): `=` and `!=` return true or false, also for null. Order comparisons
and arithmetic with null return null. AND, OR and NOT follow three-valued logic.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from vedette.element import Element
from vedette.errors import QueryError
from vedette.language.compile.execution_context import Row
from vedette.language.functions import comparison, operators
from vedette.language.functions.registry import FUNCTIONS, callable_for
from vedette.language.resolve import tree as resolved
from vedette.language.resolve.tree import ResolvedExpression
from vedette.language.types import Type
from vedette.values import duration_from_ms, timestamp_from_ms

__all__ = ["CompiledExpression", "NestedPatternCompiler", "compile_condition", "compile_id"]

CompiledExpression = Callable[[Row], Any]
NestedPatternCompiler = Callable[
    ["resolved.ResolvedExists | resolved.ResolvedPatternAggregate"], CompiledExpression
]
"""Compiles EXISTS and pattern aggregates; `PatternCompiler` implements it."""

_REFERENCES = frozenset({"Node", "Edge", "ID"})


def compile_condition(condition: ResolvedExpression, patterns: NestedPatternCompiler) -> CompiledExpression:
    """Return the closure that evaluates the expression for a row."""
    compiler: Any = _COMPILERS[type(condition)]
    closure: CompiledExpression = compiler(condition, patterns)
    return closure


def compile_id(condition: ResolvedExpression, patterns: NestedPatternCompiler) -> CompiledExpression:
    """Like `compile_condition`, but the closure returns the id of an element."""
    if isinstance(condition, resolved.VariableRef):
        return _id_of_register(condition.register)
    closure = compile_condition(condition, patterns)
    if condition.type.kind == "Any":
        return lambda row: value.id if isinstance(value := closure(row), Element) else value
    return closure


def _element(condition: ResolvedExpression, patterns: NestedPatternCompiler) -> CompiledExpression:
    """Compile an expression that refers to an element; the result is the element, or None."""
    if isinstance(condition, resolved.VariableRef):
        register = condition.register
        return lambda row: row[register]
    closure = compile_condition(condition, patterns)

    def fetch(row: Row) -> Element | None:
        id = closure(row)
        return row[0].view.get(id) if type(id) is str else None

    return fetch


# --- leaves -----------------------------------------------------------------------------------------------------


def _constant(condition: resolved.ConstantRef, patterns: NestedPatternCompiler) -> CompiledExpression:
    index = condition.index
    return lambda row: row[0].constants[index]


def _fixed(condition: resolved.FixedValue, patterns: NestedPatternCompiler) -> CompiledExpression:
    value = condition.value
    return lambda row: value


def _variable(condition: resolved.VariableRef, patterns: NestedPatternCompiler) -> CompiledExpression:
    register = condition.register
    return lambda row: row[register]


def _id_of_register(register: int) -> CompiledExpression:
    return lambda row: None if (element := row[register]) is None else element.id


def _reference(condition: resolved.ElementReference, patterns: NestedPatternCompiler) -> CompiledExpression:
    name, quoted = condition.name, condition.quoted
    if isinstance(name, resolved.ConstantRef):
        index = name.index
        return lambda row: row[0].constants[index]
    return lambda row: row[0].resolve(name, quoted)


_CONTEXT: dict[str, CompiledExpression] = {
    "now": lambda row: row[0].now(),
    "wall_time": lambda row: row[0].wall_time(),
    "logical_time": lambda row: row[0].tick,
    "current_actor": lambda row: row[0].actor,
    "current_session": lambda row: row[0].session,
    "self": lambda row: row[0].require_actor(),
    "operation": lambda row: row[0].operation,
    "target": lambda row: None if row[0].target is None else row[0].target.id,
    "target_type": lambda row: row[0].target_type,
    "target_attr": lambda row: row[0].target_attr,
}


def _context(condition: resolved.ContextFunction, patterns: NestedPatternCompiler) -> CompiledExpression:
    return _CONTEXT[condition.name]


# --- access -----------------------------------------------------------------------------------------------------


def _attribute(condition: resolved.AttributeAccess, patterns: NestedPatternCompiler) -> CompiledExpression:
    base, common_index, index_by_type = condition.base, condition.common_index, condition.index_by_type
    if isinstance(base, resolved.VariableRef) and common_index is not None:
        register = base.register
        if not base.optional:
            return lambda row: row[register].values[common_index]
        return lambda row: None if (element := row[register]) is None else element.values[common_index]
    return _read_attribute(_element(base, patterns), index_by_type)


def _dynamic(
    condition: resolved.DynamicAttributeAccess, patterns: NestedPatternCompiler
) -> CompiledExpression:
    return _read_attribute(_element(condition.base, patterns), condition.index_by_type)


def _read_attribute(fetch: CompiledExpression, index_by_type: Any) -> CompiledExpression:
    def read(row: Row) -> Any:
        element = fetch(row)
        if element is None:
            return None
        index = index_by_type.get(element.type)
        return None if index is None else element.values[index]

    return read


def _id_of(condition: resolved.IdOf, patterns: NestedPatternCompiler) -> CompiledExpression:
    if isinstance(condition.base, resolved.VariableRef) and not condition.base.optional:
        register = condition.base.register
        return lambda row: row[register].id
    fetch = _element(condition.base, patterns)
    return lambda row: None if (element := fetch(row)) is None else element.id


def _type_name(condition: resolved.TypeOf, patterns: NestedPatternCompiler) -> CompiledExpression:
    fetch = _element(condition.base, patterns)
    return lambda row: None if (element := fetch(row)) is None else element.type


def _targets(condition: resolved.TargetsOf, patterns: NestedPatternCompiler) -> CompiledExpression:
    fetch = _element(condition.base, patterns)

    def read(row: Row) -> list[str] | None:
        element = fetch(row)
        return None if element is None or element.targets is None else list(element.targets)

    return read


def _type_is(condition: resolved.TypeIs, patterns: NestedPatternCompiler) -> CompiledExpression:
    names = condition.names
    if not condition.base.type.is_reference and condition.base.type.kind not in ("ID", "Any", "Union"):
        return lambda row: False
    fetch = _element(condition.base, patterns)
    return lambda row: (element := fetch(row)) is not None and element.type in names


# --- logic ------------------------------------------------------------------------------------------------------


def _not(condition: resolved.Not, patterns: NestedPatternCompiler) -> CompiledExpression:
    operand = compile_condition(condition.operand, patterns)
    return lambda row: None if (value := operand(row)) is None else not value


def _is_null(condition: resolved.IsNull, patterns: NestedPatternCompiler) -> CompiledExpression:
    operand = compile_condition(condition.operand, patterns)
    if condition.negated:
        return lambda row: operand(row) is not None
    return lambda row: operand(row) is None


def _and(left: CompiledExpression, right: CompiledExpression) -> CompiledExpression:
    def both(row: Row) -> bool | None:
        first = left(row)
        if first is False:
            return False
        second = right(row)
        if second is False:
            return False
        return None if first is None or second is None else True

    return both


def _or(left: CompiledExpression, right: CompiledExpression) -> CompiledExpression:
    def either(row: Row) -> bool | None:
        first = left(row)
        if first is True:
            return True
        second = right(row)
        if second is True:
            return True
        return None if first is None or second is None else False

    return either


# --- operators --------------------------------------------------------------------------------------------------


def _operation(condition: resolved.BinaryOperation, patterns: NestedPatternCompiler) -> CompiledExpression:
    op = condition.op
    if op in ("=", "!="):
        return _equality(condition, patterns)
    left = compile_condition(condition.left, patterns)
    right = compile_condition(condition.right, patterns)
    match op:
        case "AND":
            return _and(left, right)
        case "OR":
            return _or(left, right)
        case "??":
            return lambda row: value if (value := left(row)) is not None else right(row)
        case "STARTS WITH":
            return _nullable(lambda a, b: a.startswith(b), left, right)
        case "ENDS WITH":
            return _nullable(lambda a, b: a.endswith(b), left, right)
        case "CONTAINS":
            return _nullable(lambda a, b: b in a, left, right)
    if op in comparison.ORDER_OPERATORS:
        return _order(op, condition.left.type, condition.right.type, left, right)
    return _nullable(operators.operator_for(op, condition.left.type, condition.right.type), left, right)


def _nullable(
    function: Callable[[Any, Any], Any], left: CompiledExpression, right: CompiledExpression
) -> CompiledExpression:
    def apply(row: Row) -> Any:
        first = left(row)
        if first is None:
            return None
        second = right(row)
        return None if second is None else function(first, second)

    return apply


def _equality(condition: resolved.BinaryOperation, patterns: NestedPatternCompiler) -> CompiledExpression:
    left_type, right_type = condition.left.type, condition.right.type
    by_id = left_type.kind in _REFERENCES or right_type.kind in _REFERENCES
    compile_side = compile_id if by_id else compile_condition
    left, right = compile_side(condition.left, patterns), compile_side(condition.right, patterns)
    if not by_id:
        left, right = _align(left_type, right_type, left, right)
    negated = condition.op == "!="
    if {left_type.kind, right_type.kind} & {"Any", "Union", "List"}:
        if negated:
            return lambda row: not comparison.values_equal(left(row), right(row))
        return lambda row: comparison.values_equal(left(row), right(row))
    if negated:
        return lambda row: left(row) != right(row)
    return lambda row: left(row) == right(row)


def _order(
    op: str, left_type: Type, right_type: Type, left: CompiledExpression, right: CompiledExpression
) -> CompiledExpression:
    left, right = _align(left_type, right_type, left, right)
    if {left_type.kind, right_type.kind} & {"Any", "Union"}:
        return _nullable(comparison.dynamic_comparator(op), left, right)
    return _nullable(comparison.ORDER_OPERATORS[op], left, right)


def _align(
    left_type: Type, right_type: Type, left: CompiledExpression, right: CompiledExpression
) -> tuple[CompiledExpression, CompiledExpression]:
    """Convert an Int operand beside a timestamp or duration: it is a number of milliseconds."""
    if right_type.kind == "Int" and left_type.kind in _FROM_MS:
        return left, _converted(right, _FROM_MS[left_type.kind])
    if left_type.kind == "Int" and right_type.kind in _FROM_MS:
        return _converted(left, _FROM_MS[right_type.kind]), right
    return left, right


_FROM_MS: dict[str, Callable[[int], datetime | timedelta]] = {
    "Timestamp": timestamp_from_ms,
    "Duration": duration_from_ms,
}


def _converted(closure: CompiledExpression, convert: Callable[[int], Any]) -> CompiledExpression:
    def apply(row: Row) -> Any:
        value = closure(row)
        try:
            return None if value is None else convert(value)
        except OverflowError as error:
            raise QueryError(
                "E2102", f"{value} milliseconds are out of range for a Timestamp or Duration"
            ) from error

    return apply


def _negate(condition: resolved.Negate, patterns: NestedPatternCompiler) -> CompiledExpression:
    operand = compile_condition(condition.operand, patterns)
    negate = operators.negation_for(condition.operand.type)
    return lambda row: None if (value := operand(row)) is None else negate(value)


def _in_list(condition: resolved.InList, patterns: NestedPatternCompiler) -> CompiledExpression:
    item_type = condition.item.type
    compile_side = compile_id if item_type.kind in _REFERENCES else compile_condition
    item = compile_side(condition.item, patterns)
    items = _id_list(condition.items, patterns) if item_type.kind in _REFERENCES else None
    items = items or compile_condition(condition.items, patterns)

    def contains(row: Row) -> bool | None:
        members = items(row)
        if members is None:
            return None
        value = item(row)
        return any(comparison.values_equal(value, member) for member in members)

    return contains


def _id_list(condition: ResolvedExpression, patterns: NestedPatternCompiler) -> CompiledExpression | None:
    if not isinstance(condition, resolved.ListValue):
        return None
    parts = tuple(compile_id(part, patterns) for part in condition.items)
    return lambda row: [part(row) for part in parts]


def _list_of(condition: resolved.ListValue, patterns: NestedPatternCompiler) -> CompiledExpression:
    parts = tuple(compile_condition(part, patterns) for part in condition.items)
    return lambda row: [part(row) for part in parts]


# --- functions --------------------------------------------------------------------------------------------------


def _function(condition: resolved.FunctionCall, patterns: NestedPatternCompiler) -> CompiledExpression:
    arguments = tuple(compile_condition(argument, patterns) for argument in condition.arguments)
    function = FUNCTIONS[condition.name]
    if function.lazy:
        return _coalesce(arguments)
    call = callable_for(function, tuple(argument.type for argument in condition.arguments))
    if function.null_safe:
        return lambda row: call(*[argument(row) for argument in arguments])
    if len(arguments) == 1:
        only = arguments[0]
        return lambda row: None if (value := only(row)) is None else call(value)

    def apply(row: Row) -> Any:
        values = [argument(row) for argument in arguments]
        return None if None in values else call(*values)

    return apply


def _coalesce(arguments: tuple[CompiledExpression, ...]) -> CompiledExpression:
    def first(row: Row) -> Any:
        for argument in arguments:
            value = argument(row)
            if value is not None:
                return value
        return None

    return first


def _nested(
    condition: resolved.ResolvedExists | resolved.ResolvedPatternAggregate, patterns: NestedPatternCompiler
) -> CompiledExpression:
    return patterns(condition)


def _aggregate(condition: resolved.AggregateCall, patterns: NestedPatternCompiler) -> CompiledExpression:
    register = condition.register
    return lambda row: row[register]


_COMPILERS: dict[type, Any] = {
    resolved.ConstantRef: _constant,
    resolved.FixedValue: _fixed,
    resolved.VariableRef: _variable,
    resolved.ElementReference: _reference,
    resolved.ContextFunction: _context,
    resolved.AttributeAccess: _attribute,
    resolved.DynamicAttributeAccess: _dynamic,
    resolved.IdOf: _id_of,
    resolved.TypeOf: _type_name,
    resolved.TargetsOf: _targets,
    resolved.TypeIs: _type_is,
    resolved.Not: _not,
    resolved.IsNull: _is_null,
    resolved.BinaryOperation: _operation,
    resolved.Negate: _negate,
    resolved.InList: _in_list,
    resolved.ListValue: _list_of,
    resolved.FunctionCall: _function,
    resolved.ResolvedExists: _nested,
    resolved.ResolvedPatternAggregate: _nested,
    resolved.AggregateCall: _aggregate,
}

"""Constant expressions: attribute defaults and the values of `[in: …]`.

A constant expression consists of literals, arithmetic and functions (docs/reference/grammar.md). A default may also
call now(), wall_time() and logical_time(); its value is then computed when the element is created.
"""

from __future__ import annotations

from vedette.errors import QueryError
from vedette.language.diagnostics import Span
from vedette.language.functions import operators
from vedette.language.functions.registry import FUNCTIONS, ArgumentTypeError
from vedette.language.syntax.expressions import Binary, Call, Expression, Literal, Unary
from vedette.language.types import Type
from vedette.language.value_kinds import type_of_value
from vedette.values import Value

__all__ = ["NotConstant", "constant_type", "constant_value", "depends_on_clock"]

_CLOCK_FUNCTIONS = frozenset({"now", "wall_time", "logical_time"})


class NotConstant(ValueError):
    """The expression is not constant. The text says why, `span` says where."""

    def __init__(self, message: str, span: Span) -> None:
        super().__init__(message)
        self.span = span


def constant_type(expression: Expression) -> Type:
    """Return the static type; raises NotConstant for an expression that a declaration does not allow."""
    match expression:
        case Literal(value=value):
            return type_of_value(value)
        case Unary(op="-", operand=operand):
            found: Type | None = operators.negation_type(constant_type(operand))
        case Binary(op=op, left=left, right=right) if op in operators.ARITHMETIC:
            found = operators.result_type(op, constant_type(left), constant_type(right))
        case Call() if _is_allowed(expression.name):
            return _call_type(expression)
        case _:
            raise NotConstant("only literals, arithmetic and now() are allowed here", expression.span)
    if found is None:
        raise NotConstant("the operator does not accept these types", expression.span)
    return found


def constant_value(expression: Expression) -> Value:
    """Return the value; raises NotConstant, also if the value depends on the clock or cannot be computed."""
    constant_type(expression)
    if depends_on_clock(expression):
        raise NotConstant("the value must be known when the ontology is defined", expression.span)
    try:
        return _value(expression)
    except QueryError as error:
        raise NotConstant(error.text, expression.span) from None


def depends_on_clock(expression: Expression) -> bool:
    """True if the value is known only when an element is created."""
    match expression:
        case Call(name=name, arguments=arguments):
            return name.lower() in _CLOCK_FUNCTIONS or any(map(depends_on_clock, arguments))
        case Unary(operand=operand):
            return depends_on_clock(operand)
        case Binary(left=left, right=right):
            return depends_on_clock(left) or depends_on_clock(right)
        case _:
            return False


def _is_allowed(name: str) -> bool:
    function = FUNCTIONS.get(name.lower())
    return (
        function is not None
        and not function.lazy
        and (not function.needs_context or name.lower() in _CLOCK_FUNCTIONS)
    )


def _call_type(call: Call) -> Type:
    function = FUNCTIONS[call.name.lower()]
    low, high = function.arity
    count = len(call.arguments)
    if count < low or (high is not None and count > high):
        raise NotConstant(f"{function.name}() does not take {count} arguments", call.span)
    try:
        return function.result_type(tuple(constant_type(argument) for argument in call.arguments))
    except ArgumentTypeError as error:
        raise NotConstant(str(error), call.span) from None


def _value(expression: Expression) -> Value:
    match expression:
        case Literal(value=value):
            return value
        case Unary(operand=operand):
            number = _value(operand)
            return None if number is None else operators.negation_for(type_of_value(number))(number)
        case Binary(op=op, left=left, right=right):
            first, second = _value(left), _value(right)
            if first is None or second is None:
                return None
            result: Value = operators.operator_for(op, type_of_value(first), type_of_value(second))(
                first, second
            )
            return result
        case Call(name=name, arguments=arguments):
            return _call(name, [_value(argument) for argument in arguments])
        case _:
            raise AssertionError(f"constant_type() does not accept {expression}")


def _call(name: str, values: list[Value]) -> Value:
    function = FUNCTIONS[name.lower()]
    if not function.null_safe and None in values:
        return None
    result: Value = function.call(*values)
    return result

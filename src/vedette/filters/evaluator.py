"""Compile the tree of a document filter into Python closures.

Theory of operation. Each node becomes a function of a `FilterInput`, or of a `MeteredInput` if its cost depends on the
document. A function returns its value or raises `EvaluationError`; the only other exception is `StepLimitExceeded`.
AND and OR evaluate all their parts before they raise an error, so the order of the parts does not matter: as in CEL,
`false && error` is false and `true || error` is true. Inside `holds` an error counts as false, and the first part that
is not true decides. Nearly all filters compare a field with a constant, so these comparisons have functions of their
own.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeAlias

from vedette.errors import FilterError
from vedette.filters import operators as values
from vedette.filters.limits import quote_name
from vedette.filters.operators import Charge, EvaluationError
from vedette.language.syntax.expressions import (
    Attribute,
    Binary,
    Call,
    Conditional,
    Expression,
    Index,
    ListLiteral,
    Literal,
    Unary,
    Variable,
)

__all__ = [
    "CompiledFilter",
    "Evaluator",
    "compile_evaluator",
]


Evaluator: TypeAlias = Callable[[Any], Any]
"""From a FilterInput or MeteredInput to a value; raises EvaluationError."""


class CompiledFilter(NamedTuple):
    run: Evaluator
    metered: bool
    """True if `run` needs a `MeteredInput`, because some of its work depends on the document."""


def compile_evaluator(expression: Expression) -> CompiledFilter:
    """Compile a tree that `limits.check_limits` has accepted."""
    builder = _Builder()
    return CompiledFilter(builder.closure(expression), builder.metered)


class _Builder:
    def __init__(self) -> None:
        self.metered = False

    def closure(self, node: Expression) -> Evaluator:
        match node:
            case Literal(value=value):
                return lambda _: value
            case ListLiteral(items=items):
                parts = [self.closure(item) for item in items]
                return lambda inputs: [part(inputs) for part in parts]
            case Variable(name=name):
                return _variable(name)
            case Attribute(base=Variable("request"), name="auth" | "time" as name):
                return lambda inputs: getattr(inputs.request, name)
            case Attribute(base=Variable("doc"), name=name):
                return _document_field(name)
            case Attribute(base=base, name=name):
                return _field(self.closure(base), name)
            case Index(base=base, key=key):
                return _apply(values.index_value, self.closure(base), self.closure(key))
            case Unary(op="NOT" | "-" as op, operand=operand):
                return _compose(
                    values.logical_not if op == "NOT" else values.numeric_negation, self.closure(operand)
                )
            case Binary():
                return self._binary(node)
            case Conditional(test=test, then=then, otherwise=otherwise):
                return _conditional(self.closure(test), self.closure(then), self.closure(otherwise))
            case Call():
                return self._call(node)
            case _:
                raise FilterError("E1201", f"a {type(node).__name__} is not allowed in a document filter")

    def _binary(self, node: Binary) -> Evaluator:
        op = node.op
        if op in ("AND", "OR"):
            return _logical_chain(self._parts(node, op), stop=op == "OR")
        if op in ("==", "!=") and isinstance(node.right, Literal) and _is_scalar(node.right.value):
            return _equals_constant(self.closure(node.left), node.right.value, op == "==")
        if op in values.ORDER and isinstance(node.right, Literal) and _is_scalar(node.right.value):
            return _ordered_constant(self.closure(node.left), node.right.value, op)
        if op == "IN" and isinstance(node.right, ListLiteral) and _is_constant(node.right):
            return _in_constants(self.closure(node.left), node.right)
        left, right = self.closure(node.left), self.closure(node.right)
        if op in values.ORDER:
            return _apply(values.order_operator(op), left, right)
        return self._charged(_operation(op), left, right)

    def _call(self, node: Call) -> Evaluator:
        match node.name, node.arguments:
            case "holds", (condition,):
                return _holds(self._parts(condition, "AND"))
            case "has", (Attribute(base=base, name=name),):
                found = self.closure(base)
                return lambda inputs: values.has_field(found(inputs), name)
            case "member", (value, items):
                return self._charged(values.has_member, self.closure(value), self.closure(items))
            case "size" | "timestamp" | "duration", (argument,):
                return _compose(values.FUNCTIONS[node.name], self.closure(argument))
            case _:
                raise FilterError(
                    "E1201", f"there is no function {quote_name(node.name)} in a document filter"
                )

    def _parts(self, node: Expression, op: str) -> tuple[Evaluator, ...]:
        """Return the operands of a chain of AND or OR, in order."""
        if isinstance(node, Binary) and node.op == op:
            return (*self._parts(node.left, op), *self._parts(node.right, op))
        return (self.closure(node),)

    def _charged(
        self, function: Callable[[Any, Any, Charge], Any], left: Evaluator, right: Evaluator
    ) -> Evaluator:
        self.metered = True
        return lambda inputs: function(left(inputs), right(inputs), inputs.charge)


def _operation(op: str) -> Callable[[Any, Any, Charge], Any]:
    if op in values.ARITHMETIC:
        return values.arithmetic_operator(op)
    if op == "==":
        return values.equal
    if op == "!=":
        return lambda left, right, charge: not values.equal(left, right, charge)
    if op == "IN":
        return values.contains
    if op in ("CONTAINS", "STARTS WITH", "ENDS WITH"):
        return values.text_operator(op)
    raise FilterError("E1201", f"there is no operator {op!a} in a document filter")


# --- paths ------------------------------------------------------------------------------------------------------


def _variable(name: str) -> Evaluator:
    if name == "doc":
        return lambda inputs: inputs.doc
    if name in ("id", "collection", "op", "before"):
        return lambda inputs: getattr(inputs, name)
    raise FilterError("E1201", f"{quote_name(name)} is not a variable of document filters")


def _field(base: Evaluator, name: str) -> Evaluator:
    missing = f"the field {quote_name(name)} is missing"

    def field(inputs: Any) -> Any:
        try:
            return base(inputs)[name]
        except (KeyError, TypeError):  # TypeError: a list, a text or null has no fields
            raise EvaluationError(missing) from None

    return field


def _document_field(name: str) -> Evaluator:
    """Read a field of the document itself. Nearly every condition does, and this saves one call."""
    missing = f"the field {quote_name(name)} is missing"

    def field(inputs: Any) -> Any:
        try:
            return inputs.doc[name]
        except (KeyError, TypeError):
            raise EvaluationError(missing) from None

    return field


# --- logic ------------------------------------------------------------------------------------------------------


def _logical_chain(parts: tuple[Evaluator, ...], *, stop: bool) -> Evaluator:
    """AND (`stop` is False) or OR (`stop` is True): a part that equals `stop` decides, whatever the others are."""
    proceed = not stop

    def every(inputs: Any) -> bool:
        error: EvaluationError | None = None
        for part in parts:
            try:
                value: object = part(inputs)
            except EvaluationError as caught:
                error = caught
                continue
            if value is stop:
                return stop
            if value is not proceed:
                error = EvaluationError("&& and || take Booleans")
        if error is not None:
            raise error
        return proceed

    return every


def _holds(parts: tuple[Evaluator, ...]) -> Evaluator:
    def holds(inputs: Any) -> bool:
        try:
            for part in parts:
                if part(inputs) is not True:
                    return False
        except EvaluationError:
            return False
        return True

    return holds


def _conditional(test: Evaluator, then: Evaluator, otherwise: Evaluator) -> Evaluator:
    def choose(inputs: Any) -> Any:
        value = test(inputs)
        if value is True:
            return then(inputs)
        if value is False:
            return otherwise(inputs)
        raise EvaluationError("?: takes a Boolean")

    return choose


# --- operators --------------------------------------------------------------------------------------------------


def _compose(function: Callable[[Any], Any], operand: Evaluator) -> Evaluator:
    return lambda inputs: function(operand(inputs))


def _apply(function: Callable[[Any, Any], Any], left: Evaluator, right: Evaluator) -> Evaluator:
    return lambda inputs: function(left(inputs), right(inputs))


def _equals_constant(left: Evaluator, constant: Any, expected: bool) -> Evaluator:
    """Compare with a scalar constant (0.12 instead of 1.1 µs).

    Python's `==` is correct for scalars, except that it treats Booleans as numbers.
    """
    if constant is None or isinstance(constant, bool):
        return lambda inputs: (left(inputs) is constant) is expected
    if isinstance(constant, int | float):

        def same_number(inputs: Any) -> bool:
            value = left(inputs)
            return (value == constant and value.__class__ is not bool) is expected

        return same_number
    if expected:
        return lambda inputs: left(inputs) == constant
    return lambda inputs: left(inputs) != constant


def _ordered_constant(left: Evaluator, constant: Any, sign: str) -> Evaluator:
    """Order comparison with a scalar constant (124 instead of 198 ns)."""
    general = values.order_operator(sign)
    apply = values.ORDER[sign]
    kinds = (int, float) if constant.__class__ in (int, float) else (str,)
    if constant.__class__ not in (int, float, str):
        return lambda inputs: general(left(inputs), constant)

    def ordered(inputs: Any) -> Any:
        value = left(inputs)
        if value.__class__ in kinds:
            return apply(value, constant)
        return general(value, constant)

    return ordered


def _in_constants(left: Evaluator, items: ListLiteral) -> Evaluator:
    """Membership in a list of scalar constants, as a set (0.12 instead of 22 µs for 256 items)."""
    constants = [item.value for item in items.items if isinstance(item, Literal)]
    flags = frozenset(value for value in constants if isinstance(value, bool))
    others = frozenset(value for value in constants if not isinstance(value, bool))

    def member(inputs: Any) -> bool:
        value = left(inputs)
        if value.__class__ is bool:
            return value in flags
        try:
            return value in others
        except TypeError:  # a list or a map cannot be a member of a set
            return False

    return member


def _is_constant(items: ListLiteral) -> bool:
    return all(isinstance(item, Literal) and _is_scalar(item.value) for item in items.items)


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | datetime | timedelta)

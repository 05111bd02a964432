"""The table of built-in functions: name, arity, result type, implementation.

An implementation takes non-null values. The compiler returns null if an argument is null, unless the function is
`null_safe`. Two kinds of functions have no implementation here:

- Context functions such as now(): the compiler reads the value from the execution context. `permission` says where they
  may be called.
- coalesce(), which is lazy: the compiler evaluates its arguments one by one until one is not null.

For the id of an element `type_of` needs the graph, so the compiler handles this case. The functions are described in
docs/reference/language/expressions.md#functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from vedette.errors import QueryError
from vedette.language.functions import scalar
from vedette.language.functions.formats import FORMATS
from vedette.language.types import (
    ANY_VALUE,
    BOOL,
    FLOAT,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    Type,
    describe,
    list_of,
    node_type,
    union_of,
)
from vedette.language.value_kinds import kind_of_value, type_of_value

__all__ = ["FUNCTIONS", "ArgumentTypeError", "Function", "callable_for"]

ResultRule: TypeAlias = Callable[[tuple[Type, ...]], Type]
"""From the argument types to the result type; raises ArgumentTypeError."""


class ArgumentTypeError(Exception):
    """A function does not accept an argument of this type. The text names the argument and the accepted types."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    name: str
    """In lower case. Texts may spell it in any case."""
    arity: tuple[int, int | None]
    """Minimum and maximum number of arguments; None means no maximum."""
    result_type: ResultRule
    call: Callable[..., Any]
    """The implementation, for values of types that `result_type` accepts."""
    null_safe: bool = False
    """True if `call` accepts nulls: is_null, is_not_null."""
    needs_context: bool = False
    """True for a context function."""
    permission: str | None = None
    """The field of `ExpressionSite` that must be true where a context function is called."""
    lazy: bool = False


# --- result types -----------------------------------------------------------------------------------------------

_UNCERTAIN = frozenset({"Any", "Null"})


def _fits(type_: Type, kinds: tuple[str, ...]) -> bool:
    """True if a value of the type may be of one of the kinds; a union fits if one member does."""
    if type_.kind == "Union":
        return any(_fits(member, kinds) for member in type_.members)
    return type_.kind in kinds or type_.kind in _UNCERTAIN


def _signature(name: str, parameters: tuple[str, ...], result: Type | ResultRule) -> ResultRule:
    """Return a rule that checks the arguments against parameters such as `Int|Float`.

    `result` is a type, or a rule if the result type depends on the argument types.
    """
    accepted = tuple(tuple(parameter.split("|")) for parameter in parameters)

    def rule(types: tuple[Type, ...]) -> Type:
        for number, (type_, kinds) in enumerate(zip(types, accepted, strict=False), start=1):
            if not _fits(type_, kinds):
                which = f"argument {number} of {name}()" if len(accepted) > 1 else f"the argument of {name}()"
                raise ArgumentTypeError(f"{which} must be {' or '.join(kinds)}, not {describe(type_)}")
        return result if isinstance(result, Type) else result(types)

    return rule


def _any_arguments(result: Type) -> ResultRule:
    return lambda _: result


def _first(types: tuple[Type, ...]) -> Type:
    return types[0]


def _common_type(name: str) -> ResultRule:
    """Return the rule of min and max: two values of one type, or Int and Float, which gives Float."""

    def rule(types: tuple[Type, ...]) -> Type:
        left, right = types
        if left == right or right.kind == "Null":
            return left
        if left.kind == "Null":
            return right
        if left.is_numeric and right.is_numeric:
            return FLOAT
        if {left.kind, right.kind} & {"Any", "Union"}:
            return ANY_VALUE
        raise ArgumentTypeError(
            f"{name}() needs two values of one type, not {describe(left)} and {describe(right)}"
        )

    return rule


def _coalesce_type(types: tuple[Type, ...]) -> Type:
    known = tuple(type_ for type_ in types if type_.kind != "Null")
    if any(type_.kind == "Any" for type_ in known):
        return ANY_VALUE
    return union_of(known) if known else NULL


# --- the table --------------------------------------------------------------------------------------------------

_ORDERED = "Int|Float|String|Timestamp|Duration"


def _fixed_arity(
    name: str, parameters: tuple[str, ...], result: Type | ResultRule, call: Callable[..., Any]
) -> Function:
    size = len(parameters)
    return Function(
        name=name, arity=(size, size), result_type=_signature(name, parameters, result), call=call
    )


def _text_functions() -> list[Function]:
    text = ("String",)
    substring = _signature("substring", ("String", "Int", "Int"), STRING)
    return [
        _fixed_arity("length", ("String|List",), INT, scalar.length),
        _fixed_arity("len", ("String|List",), INT, scalar.length),
        _fixed_arity("lower", text, STRING, scalar.lower),
        _fixed_arity("upper", text, STRING, scalar.upper),
        _fixed_arity("trim", text, STRING, scalar.trim),
        _fixed_arity("contains", text * 2, BOOL, scalar.contains),
        _fixed_arity("starts_with", text * 2, BOOL, scalar.starts_with),
        _fixed_arity("ends_with", text * 2, BOOL, scalar.ends_with),
        Function(name="substring", arity=(2, 3), result_type=substring, call=scalar.substring),
        _fixed_arity("replace", text * 3, STRING, scalar.replace),
        _fixed_arity("split", text * 2, list_of(STRING), scalar.split),
        *(_fixed_arity(f"is_{name}", text, BOOL, test) for name, test in FORMATS.items()),
    ]


def _number_functions() -> list[Function]:
    number = ("Int|Float",)
    return [
        _fixed_arity("abs", ("Int|Float|Duration",), _first, scalar.absolute),
        _fixed_arity("min", (_ORDERED, _ORDERED), _common_type("min"), scalar.minimum),
        _fixed_arity("max", (_ORDERED, _ORDERED), _common_type("max"), scalar.maximum),
        _fixed_arity("floor", number, INT, scalar.floor),
        _fixed_arity("ceil", number, INT, scalar.ceil),
        _fixed_arity("round", number, INT, scalar.round_half_up),
        _fixed_arity("is_nan", number, BOOL, scalar.is_nan),
    ]


def _time_functions() -> list[Function]:
    return [
        _fixed_arity("timestamp", ("String",), TIMESTAMP, scalar.timestamp),
        *(_fixed_arity(name, ("Timestamp",), INT, part) for name, part in scalar.TIMESTAMP_FIELDS.items()),
        *(
            _fixed_arity(f"to_{unit}", ("Duration",), INT, scalar.duration_in(unit))
            for unit in scalar.MILLISECONDS_PER_UNIT
        ),
    ]


def _null_functions() -> list[Function]:
    one = (1, 1)
    return [
        Function(
            name="is_null",
            arity=one,
            result_type=_any_arguments(BOOL),
            call=lambda value: value is None,
            null_safe=True,
        ),
        Function(
            name="is_not_null",
            arity=one,
            result_type=_any_arguments(BOOL),
            call=lambda value: value is not None,
            null_safe=True,
        ),
        Function(
            name="coalesce",
            arity=(1, None),
            result_type=_coalesce_type,
            call=_unavailable("coalesce"),
            lazy=True,
        ),
        Function(name="type_of", arity=one, result_type=_any_arguments(STRING), call=kind_of_value),
    ]


_CONTEXT_FUNCTIONS: dict[str, tuple[Type, str | None]] = {
    "now": (TIMESTAMP, "allows_clock"),
    "wall_time": (TIMESTAMP, "allows_clock"),
    "logical_time": (INT, None),
    "current_actor": (node_type(), "allows_actor"),
    "current_session": (node_type("_Session"), "allows_actor"),
    "operation": (STRING, "allows_policy_target"),
    "target": (node_type(), "allows_policy_target"),
    "target_type": (STRING, "allows_policy_target"),
    "target_attr": (STRING, "allows_policy_target"),
}
"""Result type and permission of each context function."""


def _context_functions() -> list[Function]:
    return [
        Function(
            name=name,
            arity=(0, 0),
            result_type=_any_arguments(result),
            call=_unavailable(name),
            needs_context=True,
            permission=permission,
        )
        for name, (result, permission) in _CONTEXT_FUNCTIONS.items()
    ]


def _unavailable(name: str) -> Callable[..., Any]:
    def call(*_: Any) -> Any:
        raise AssertionError(f"{name}() is evaluated by the compiler, never called")

    return call


FUNCTIONS: Mapping[str, Function] = {
    function.name: function
    for functions in (
        _text_functions(),
        _number_functions(),
        _time_functions(),
        _null_functions(),
        _context_functions(),
    )
    for function in functions
}
"""By name in lower case; `len` is another name of `length`."""


def callable_for(function: Function, types: tuple[Type, ...]) -> Callable[..., Any]:
    """Return `function.call`; if a static type is Any or a union, with a check of the values first (E2102)."""
    certain = all(type_.kind not in ("Any", "Union") for type_ in types)
    if certain or function.null_safe or function.needs_context or function.lazy:
        return function.call
    return _checked(function)


def _checked(function: Function) -> Callable[..., Any]:
    result, call = function.result_type, function.call

    def run(*arguments: Any) -> Any:
        try:
            result(tuple(map(type_of_value, arguments)))
        except ArgumentTypeError as error:
            raise QueryError("E2102", str(error)) from None
        return call(*arguments)

    return run

"""The built-in functions: names, arities, result types and implementations (spec/language.md §2.4).

An implementation takes plain, non-null values; null in, null out is the caller's work unless `null_safe`. Two sorts
have a `call` that is never called: those that `needs_context` (the compiler takes the answer from the execution
context), and the `lazy` one, coalesce (the compiler evaluates its arguments one by one). `type_of` names the kind of a
plain value or an element; for an id, which only its static type tells from a string, the compiler asks the graph.
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

__all__ = ["FUNCTIONS", "Function", "callable_for", "function_named"]

Result: TypeAlias = Callable[[tuple[Type, ...]], Type | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    name: str
    """As the documentation spells it; look up case-insensitively."""
    arity: tuple[int, int | None]
    """Fewest and most arguments; None is any number."""
    result_type: Result
    """The result's type for arguments of these types (as many as `arity` says), or a str: what is wrong (E2003)."""
    call: Callable[..., Any]
    """For values of the static types that `result` accepted; never for null unless `null_safe`."""
    null_safe: bool = False
    """Called with nulls too: is_null, is_not_null."""
    needs_context: bool = False
    lazy: bool = False


# --- result types -----------------------------------------------------------------------------------------------

_UNCERTAIN = frozenset({"Any", "Null"})


def _fits(type_: Type, kinds: tuple[str, ...]) -> bool:
    """Of a union one fitting member is enough: the run decides."""
    if type_.kind == "Union":
        return any(_fits(member, kinds) for member in type_.members)
    return type_.kind in kinds or type_.kind in _UNCERTAIN


def _signature(name: str, parameters: tuple[str, ...], result: Type | Result) -> Result:
    """A rule for parameters given as `Int|Float`; a result that depends on the arguments is a rule of its own."""
    wanted = tuple(tuple(parameter.split("|")) for parameter in parameters)

    def rule(types: tuple[Type, ...]) -> Type | str:
        for place, (type_, kinds) in enumerate(zip(types, wanted, strict=False), start=1):
            if not _fits(type_, kinds):
                which = f"argument {place} of {name}()" if len(wanted) > 1 else f"the argument of {name}()"
                return f"{which} must be {' or '.join(kinds)}, not {describe(type_)}"
        return result if isinstance(result, Type) else result(types)

    return rule


def _anything(result: Type) -> Result:
    return lambda _: result


def _first(types: tuple[Type, ...]) -> Type:
    return types[0]


def _common_type(name: str) -> Result:
    """min and max: both of one type, or Int with Float, which gives Float."""

    def rule(types: tuple[Type, ...]) -> Type | str:
        left, right = types
        if left == right or right.kind == "Null":
            return left
        if left.kind == "Null":
            return right
        if left.is_numeric and right.is_numeric:
            return FLOAT
        if {left.kind, right.kind} & {"Any", "Union"}:
            return ANY_VALUE
        return f"{name}() needs two values of one type, not {describe(left)} and {describe(right)}"

    return rule


def _coalesce_type(types: tuple[Type, ...]) -> Type:
    known = tuple(type_ for type_ in types if type_.kind != "Null")
    if any(type_.kind == "Any" for type_ in known):
        return ANY_VALUE
    return union_of(known) if known else NULL


# --- the table --------------------------------------------------------------------------------------------------

_ORDERED = "Int|Float|String|Timestamp|Duration"


def _fixed_arity(
    name: str, parameters: tuple[str, ...], result: Type | Result, call: Callable[..., Any]
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
            result_type=_anything(BOOL),
            call=lambda value: value is None,
            null_safe=True,
        ),
        Function(
            name="is_not_null",
            arity=one,
            result_type=_anything(BOOL),
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
        Function(name="type_of", arity=one, result_type=_anything(STRING), call=kind_of_value),
    ]


_CONTEXT: dict[str, Type] = {
    "now": TIMESTAMP,
    "wall_time": TIMESTAMP,
    "logical_time": INT,
    "current_actor": node_type(),
    "current_session": node_type("_Session"),
    "operation": STRING,
    "target": ANY_VALUE,
    "target_type": STRING,
    "target_attr": STRING,
}


def _context_functions() -> list[Function]:
    return [
        Function(
            name=name,
            arity=(0, 0),
            result_type=_anything(result),
            call=_unavailable(name),
            needs_context=True,
        )
        for name, result in _CONTEXT.items()
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
"""By lower-case name; `len` is `length`."""


def function_named(name: str) -> Function | None:
    """The function of this name in any spelling of case, or None."""
    return FUNCTIONS.get(name.lower())


def callable_for(function: Function, types: tuple[Type, ...]) -> Callable[..., Any]:
    """`function.call` when the static types are certain; otherwise one that looks at the values first (E2102)."""
    certain = all(type_.kind not in ("Any", "Union") for type_ in types)
    if certain or function.null_safe or function.needs_context or function.lazy:
        return function.call
    return _checked(function)


def _checked(function: Function) -> Callable[..., Any]:
    result, call = function.result_type, function.call

    def run(*arguments: Any) -> Any:
        problem = result(tuple(map(type_of_value, arguments)))
        if isinstance(problem, str):
            raise QueryError("E2102", problem)
        return call(*arguments)

    return run

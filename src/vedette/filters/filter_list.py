"""Filter lists, `[{"field": "status", "op": "==", "value": "paid"}, …]`, as a front end to the shared tree.

The conditions hold together (there is no OR and no NOT), and a condition that makes no sense for a document, such as
one on a field that is missing or a range over different families, is simply not met (spec/pipeline.md §1.6). In CEL
the same thing is an error. One function says the difference, so that everything else is shared with `cel.py`:

    holds(condition)        true when the condition is true; false when it is false or an error
    member(value, list)     whether a list has the value; an error for anything but a list (`in` also knows maps)

A list becomes `holds(a AND b AND …)`, the empty list the literal `true`. Each condition is

    field == value          Binary ==, and so for != > >= < <=; the field a path of Attribute from Variable doc
    field in [values]       Binary IN with a ListLiteral, duplicates removed
    field contains value    Call member(Literal, path)

and every constant is a Literal. The tree is built from the parts, never by joining text: a field or a value cannot
become anything else (§1.5 lists what happened to a system that joined). The field `_id` is the Variable id.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from vedette.errors import FilterError
from vedette.filters.cel_parser import join_balanced
from vedette.filters.limits import DEFAULT_FILTER_LIMITS, FilterLimits, check_limits
from vedette.filters.literals import parse_go_duration, parse_rfc3339
from vedette.language.syntax.expressions import (
    Attribute,
    Binary,
    Call,
    Expression,
    ListLiteral,
    Literal,
    Variable,
)
from vedette.values import INT_MAX, INT_MIN, Value, to_canonical

__all__ = [
    "OPERATORS",
    "FilterCondition",
    "build_expression",
    "parse_filter_records",
    "parse_filters",
    "validate_name",
]

OPERATORS = ("==", "!=", ">", ">=", "<", "<=", "in", "contains")
_RANGES = frozenset({">", ">=", "<", "<="})
_HINTS = {"array-contains": "contains", "=": "==", "<>": "!=", "eq": "==", "ne": "!=", "gt": ">", "lt": "<"}
_KEYS = frozenset({"field", "op", "value"})
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterCondition:
    """One condition; `value` is canonical, and for `in` a tuple of distinct scalars."""

    field: str
    """A dotted path into the document."""
    op: str
    value: Value | tuple[Value, ...]


def parse_filters(filters: object, limits: FilterLimits = DEFAULT_FILTER_LIMITS) -> Expression:
    """Read a filter list as it comes from JSON; raises FilterError E1201 or E1202 that names the condition."""
    return build_expression(parse_filter_records(filters, limits), limits)


def parse_filter_records(
    filters: object, limits: FilterLimits = DEFAULT_FILTER_LIMITS
) -> tuple[FilterCondition, ...]:
    """The list as records, checked one by one; `build_expression` makes the tree of them."""
    if filters is None:
        return ()
    if not isinstance(filters, list | tuple):
        raise FilterError("E1201", f"filters: a list is expected, and this is {_kind(filters)}")
    if len(filters) > limits.nodes:
        fields = {"limit": "nodes", "allowed": limits.nodes}
        raise FilterError("E1202", f"filters: a filter has at most {limits.nodes} nodes", fields=fields)
    return tuple(_Reader(f"filters[{index}]", index, limits).read(item) for index, item in enumerate(filters))


def build_expression(
    filters: Sequence[FilterCondition], limits: FilterLimits = DEFAULT_FILTER_LIMITS
) -> Expression:
    """The tree of a filter list, within its limits."""
    if not filters:
        return Literal(True)
    expression = Call("holds", (join_balanced("AND", [_condition(item) for item in filters]),))
    check_limits(expression, limits)
    return expression


def validate_name(
    name: object, what: str, limits: FilterLimits = DEFAULT_FILTER_LIMITS, **fields: object
) -> str:
    """A field or collection name: a text without control characters, halves of characters or empty steps."""
    problem = None
    if not isinstance(name, str):
        problem = f"a text is expected, and this is {_kind(name)}"
    elif not limits.allows(name):
        fields |= {"limit": "source_bytes", "allowed": limits.source_bytes}
        raise FilterError("E1202", f"{what}: at most {limits.source_bytes} bytes", fields=fields)
    elif not name:
        problem = "a name is expected, and this is empty"
    elif any(unicodedata.category(sign) in ("Cc", "Cs") for sign in name):
        problem = "the name has a control character or half of a surrogate pair"
    if problem is not None:
        raise FilterError("E1201", f"{what}: {problem}", fields=fields)
    return str(name)


def _condition(item: FilterCondition) -> Expression:
    path = _path(item.field)
    if item.op == "in":
        values = item.value if isinstance(item.value, tuple) else ()
        return Binary("IN", path, ListLiteral(tuple(Literal(value) for value in values)))
    constant = Literal(item.value)  # type: ignore[arg-type]  # only `in` has a tuple
    if item.op == "contains":
        return Call("member", (constant, path))
    return Binary(item.op, path, constant)


def _path(field: str) -> Expression:
    if field == "_id":
        return Variable("id")
    path: Expression = Variable("doc")
    for step in field.split("."):
        path = Attribute(path, step)
    return path


class _Reader:
    """Reads one condition; knows how to say where it stands."""

    def __init__(self, where: str, index: int, limits: FilterLimits) -> None:
        self._where = where
        self._index = index
        self._limits = limits

    def read(self, item: object) -> FilterCondition:
        if not isinstance(item, Mapping):
            raise self._refusal(
                "", f"an object with field, op and value is expected, and this is {_kind(item)}"
            )
        if set(item) != _KEYS:
            raise self._refusal("", "an object with exactly field, op and value is expected")
        field = validate_name(item["field"], f"{self._where}.field", self._limits, index=self._index)
        if not all(field.split(".")):
            raise self._refusal(".field", "a dotted path has an empty step")
        op = item["op"]
        if not isinstance(op, str) or op not in OPERATORS:
            hint = f"; did you mean {_HINTS[op]!r}?" if isinstance(op, str) and op in _HINTS else ""
            raise self._refusal(".op", f"one of {' '.join(OPERATORS)} is expected{hint}")
        return FilterCondition(field=field, op=op, value=self._operand(op, item["value"]))

    def _operand(self, op: str, value: object) -> Value | tuple[Value, ...]:
        value = self._decode_typed_value(value)
        if op == "in":
            return self._candidates(value)
        if isinstance(value, list | tuple):
            raise self._refusal(".value", f"{op} takes one value, and this is a list")
        scalar = self._scalar(value)
        if op in _RANGES and (scalar is None or isinstance(scalar, bool)):
            raise self._refusal(".value", f"{op} takes a number, a text, a timestamp or a duration")
        return scalar

    def _candidates(self, value: object) -> tuple[Value, ...]:
        if not isinstance(value, list | tuple):
            raise self._refusal(".value", f"in takes a list, and this is {_kind(value)}")
        distinct: dict[tuple[bool, Value], Value] = {}
        for item in value:
            scalar = self._scalar(self._decode_typed_value(item))
            distinct.setdefault((isinstance(scalar, bool), scalar), scalar)
            if len(distinct) > self._limits.list_items:
                allowed = self._limits.list_items
                raise self._too_large(".value", f"at most {allowed} different values", "list_items", allowed)
        return tuple(distinct.values())

    def _scalar(self, value: object) -> Value:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, float) and not math.isfinite(value):
            raise self._refusal(".value", "a finite number is expected")
        if isinstance(value, str):
            self._check_text(value)
        elif not isinstance(value, int | float | datetime | timedelta):
            raise self._refusal(".value", f"a scalar or null is expected, and this is {_kind(value)}")
        try:
            return to_canonical(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise self._refusal(".value", str(error)) from None

    def _check_text(self, value: str) -> None:
        if not self._limits.allows(value):
            allowed = self._limits.source_bytes
            raise self._too_large(
                ".value", f"a text of at most {allowed} bytes is expected", "source_bytes", allowed
            )
        try:
            value.encode()
        except UnicodeEncodeError:
            raise self._refusal(".value", "half of a surrogate pair is no character") from None

    def _decode_typed_value(self, value: object) -> object:
        """What a typed node `{"type": …, "value": …}` stands for; anything else is returned as it is."""
        if not isinstance(value, Mapping):
            return value
        kind = value.get("type")
        read = _TYPES.get(kind) if isinstance(kind, str) else None
        if read is None or not set(value) <= {"type", "value"}:
            raise self._refusal(".value", f"a scalar, null or a node of type {', '.join(_TYPES)} is expected")
        try:
            return read(value.get("value"))
        except ValueError as error:
            raise self._refusal(".value", str(error)) from None

    def _refusal(self, part: str, problem: str) -> FilterError:
        return FilterError("E1201", f"{self._where}{part}: {problem}", fields={"index": self._index})

    def _too_large(self, part: str, problem: str, limit: str, allowed: int) -> FilterError:
        fields = {"index": self._index, "limit": limit, "allowed": allowed}
        return FilterError("E1202", f"{self._where}{part}: {problem}", fields=fields)


def _read_int64(value: Any) -> int:
    if not isinstance(value, str) or not _DECIMAL.fullmatch(value) or not INT_MIN <= int(value) <= INT_MAX:
        raise ValueError("an int64 is a decimal text within 64 bits")
    return int(value)


def _read_float64(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("a float64 is a number")
    try:
        return float(value)
    except OverflowError:
        raise ValueError("a float64 is a finite number") from None


def _exactly(kind: type, word: str) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, kind):
            raise ValueError(f"this node holds no {word}")
        return value

    return read


def _read_moment(read: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda value: read(_exactly(str, "text")(value))


_TYPES: dict[str, Callable[[Any], Any]] = {
    "null": _exactly(type(None), "null"),
    "bool": _exactly(bool, "Boolean"),
    "string": _exactly(str, "text"),
    "int64": _read_int64,
    "float64": _read_float64,
    "array": _exactly(list, "list"),
    "timestamp": _read_moment(parse_rfc3339),
    "duration": _read_moment(parse_go_duration),
}
"""The typed JSON nodes of §1.6, and the two types that JSON has no other way to write. Objects are no operands."""


def _kind(value: object) -> str:
    if value is None:
        return "null"
    words = {
        bool: "a Boolean",
        str: "a text",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "an object",
    }
    return words.get(type(value), f"a Python {type(value).__name__}")

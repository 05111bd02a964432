"""Read filter lists such as `[{"field": "status", "op": "==", "value": "paid"}, …]` into the shared expression tree.

All conditions must be true; there is no OR and no NOT. A condition that cannot be evaluated for a document (a missing
field, an order between different types) is false; in CEL it is an error (docs/reference/filters.md#filter-lists). Two
functions express this difference, so that lists and CEL share everything else:

    holds(condition)        true if the condition is true; false if it is false or cannot be evaluated
    member(value, list)     true if the list contains the value; an error for anything but a list (`in` accepts maps)

A list becomes `holds(a AND b AND …)`, the empty list becomes the literal `true`. The conditions become:

    field == value          Binary ==, likewise != > >= < <=; the field is a path of Attribute nodes from Variable doc
    field in [values]       Binary IN with a ListLiteral, without duplicates
    field contains value    Call member(Literal, path)

The field `_id` is the Variable id. The tree is built from the parts, never by joining texts, so a field or value cannot
inject other syntax.
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
    """One condition. `value` is canonical; for `in` it is a tuple of distinct scalars."""

    field: str
    """A dotted path into the document."""
    op: str
    value: Value | tuple[Value, ...]


def parse_filters(filters: object, limits: FilterLimits = DEFAULT_FILTER_LIMITS) -> Expression:
    """Read a filter list from decoded JSON; raises FilterError E1201 or E1202 that names the condition."""
    return build_expression(parse_filter_records(filters, limits), limits)


def parse_filter_records(
    filters: object, limits: FilterLimits = DEFAULT_FILTER_LIMITS
) -> tuple[FilterCondition, ...]:
    """Return the checked conditions of a filter list. `build_expression` makes the tree of them."""
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
    """Return the tree of a filter list; raises E1202 if it is too large."""
    if not filters:
        return Literal(True)
    expression = Call("holds", (join_balanced("AND", [_condition(item) for item in filters]),))
    check_limits(expression, limits)
    return expression


def validate_name(
    name: object, what: str, limits: FilterLimits = DEFAULT_FILTER_LIMITS, **fields: object
) -> str:
    """Check the name of a field or collection: a text without control characters and lone surrogates (E1201, E1202)."""
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
    """Reads one condition and names it in errors."""

    def __init__(self, where: str, index: int, limits: FilterLimits) -> None:
        self._where = where
        self._index = index
        self._limits = limits

    def read(self, item: object) -> FilterCondition:
        if not isinstance(item, Mapping):
            raise self._error(
                "", f"an object with field, op and value is expected, and this is {_kind(item)}"
            )
        if set(item) != _KEYS:
            raise self._error("", "an object with exactly field, op and value is expected")
        field = validate_name(item["field"], f"{self._where}.field", self._limits, index=self._index)
        if not all(field.split(".")):
            raise self._error(".field", "a dotted path has an empty step")
        op = item["op"]
        if not isinstance(op, str) or op not in OPERATORS:
            hint = f"; did you mean {_HINTS[op]!r}?" if isinstance(op, str) and op in _HINTS else ""
            raise self._error(".op", f"one of {' '.join(OPERATORS)} is expected{hint}")
        return FilterCondition(field=field, op=op, value=self._operand(op, item["value"]))

    def _operand(self, op: str, value: object) -> Value | tuple[Value, ...]:
        value = self._decode_typed_value(value)
        if op == "in":
            return self._candidates(value)
        if isinstance(value, list | tuple):
            raise self._error(".value", f"{op} takes one value, and this is a list")
        scalar = self._scalar(value)
        if op in _RANGES and (scalar is None or isinstance(scalar, bool)):
            raise self._error(".value", f"{op} takes a number, a text, a timestamp or a duration")
        return scalar

    def _candidates(self, value: object) -> tuple[Value, ...]:
        if not isinstance(value, list | tuple):
            raise self._error(".value", f"in takes a list, and this is {_kind(value)}")
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
            raise self._error(".value", "a finite number is expected")
        if isinstance(value, str):
            self._check_text(value)
        elif not isinstance(value, int | float | datetime | timedelta):
            raise self._error(".value", f"a scalar or null is expected, and this is {_kind(value)}")
        try:
            return to_canonical(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise self._error(".value", str(error)) from None

    def _check_text(self, value: str) -> None:
        if not self._limits.allows(value):
            allowed = self._limits.source_bytes
            raise self._too_large(
                ".value", f"a text of at most {allowed} bytes is expected", "source_bytes", allowed
            )
        try:
            value.encode()
        except UnicodeEncodeError:
            raise self._error(".value", "half of a surrogate pair is not a character") from None

    def _decode_typed_value(self, value: object) -> object:
        """Return the value of a typed node `{"type": …, "value": …}`; any other value is returned unchanged."""
        if not isinstance(value, Mapping):
            return value
        kind = value.get("type")
        read = _TYPES.get(kind) if isinstance(kind, str) else None
        if read is None or not set(value) <= {"type", "value"}:
            raise self._error(".value", f"a scalar, null or a node of type {', '.join(_TYPES)} is expected")
        try:
            return read(value.get("value"))
        except ValueError as error:
            raise self._error(".value", str(error)) from None

    def _error(self, part: str, problem: str) -> FilterError:
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
            raise ValueError(f"the value of this node must be {word}")
        return value

    return read


def _read_text(read: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda value: read(_exactly(str, "a text")(value))


_TYPES: dict[str, Callable[[Any], Any]] = {
    "null": _exactly(type(None), "null"),
    "bool": _exactly(bool, "a Boolean"),
    "string": _exactly(str, "a text"),
    "int64": _read_int64,
    "float64": _read_float64,
    "array": _exactly(list, "a list"),
    "timestamp": _read_text(parse_rfc3339),
    "duration": _read_text(parse_go_duration),
}
"""The types of typed nodes, with their readers."""


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

"""Filter lists compared with a second implementation of the truth table; hostile input to all front ends."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vedette.errors import FilterError
from vedette.filters.cel_parser import parse_cel
from vedette.filters.collection_query import parse_query
from vedette.filters.document_filter import compile_filter
from vedette.filters.filter_list import OPERATORS, parse_filters
from vedette.filters.inputs import FilterInput, FilterOutcome
from vedette.filters.limits import FilterLimits

WHOLE = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 1, 2**53, 2**53 + 1])
NUMBERS = (
    WHOLE | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, -0.0, 1.0, 2.0**53])
)
TEXTS = st.text(max_size=3) | st.sampled_from(["", "a", "news", "1"])
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
FIELDS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=2)
)
MISSING = object()


# The truth table of docs/reference/filters.md, implemented independently


def typed(value: Any) -> Any:
    """Return a key for which Python's == is the equality of the truth table."""
    if isinstance(value, bool) or value is None:
        return ("flag", str(value))
    return ("text", value) if isinstance(value, str) else ("number", Fraction(value))


def table(value: Any, op: str, operand: Any) -> bool:
    if value is MISSING:
        return False
    scalar = not isinstance(value, list | dict)
    if op == "==":
        return scalar and typed(value) == typed(operand)
    if op == "!=":
        return not (scalar and typed(value) == typed(operand))
    if op == "in":
        return scalar and typed(value) in [typed(candidate) for candidate in operand]
    if op == "contains":
        members = value if isinstance(value, list) else []
        return typed(operand) in [typed(member) for member in members if not isinstance(member, list | dict)]
    if not scalar or typed(value)[0] != typed(operand)[0] or typed(value)[0] == "flag":
        return False
    left, right = typed(value)[1], typed(operand)[1]
    if isinstance(left, str):
        left, right = left.encode(), right.encode()
    return bool({">": left > right, ">=": left >= right, "<": left < right, "<=": left <= right}[op])


def operands(op: str) -> st.SearchStrategy[Any]:
    if op == "in":
        return st.lists(SCALARS, max_size=4)
    return SCALARS if op in ("==", "!=", "contains") else NUMBERS | TEXTS


CONDITIONS = st.sampled_from(OPERATORS).flatmap(lambda op: st.tuples(st.just(op), operands(op)))


@given(CONDITIONS, FIELDS | st.just(MISSING) | st.lists(SCALARS, max_size=4))
@example(("==", 2.0**53), 2**53 + 1)
@example(("contains", 1), [True])
def test_the_truth_table(condition: tuple[str, Any], value: Any) -> None:
    op, operand = condition
    compiled = compile_filter(parse_filters([{"field": "f", "op": op, "value": operand}]))
    environment = FilterInput(doc={} if value is MISSING else {"f": value})
    assert compiled.outcome(environment) is (
        FilterOutcome.MATCH if table(value, op, operand) else FilterOutcome.NO_MATCH
    )


@given(st.lists(CONDITIONS, max_size=4), FIELDS)
def test_a_list_is_the_conjunction_of_its_conditions(conditions: list[tuple[str, Any]], value: Any) -> None:
    compiled = compile_filter(
        parse_filters([{"field": "f", "op": op, "value": given} for op, given in conditions])
    )
    expected = all(table(value, op, operand) for op, operand in conditions)
    assert compiled.matches(FilterInput(doc={"f": value})) is expected


@given(st.text(min_size=1, max_size=12), SCALARS)
def test_names_and_values_are_never_code(field: str, value: Any) -> None:
    """Only a document with that field and that value matches, whatever characters they contain."""
    try:
        compiled = compile_filter(parse_filters([{"field": field, "op": "==", "value": value}]))
    except FilterError:
        return
    document: Any = value
    for step in reversed(field.split(".")):
        document = {step: document}
    assert compiled.matches(FilterInput(doc=document, id=value)) or field == "_id"
    assert not compiled.matches(FilterInput(doc={"other": value}, id="other")) or value == "other"


# Hostile input

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
WORDS = (
    "doc id op before request resource event auth userId data type time true false null in has size contains "
    "startsWith timestamp duration matches . , : ? ( ) [ ] { } ! - + * / % < <= > >= == != && || = & | "
    "' \" ''' r' b' \\ // ` # $ 0 1 1u 0x 1e9 1. .5 9223372036854775808 1e999 'a' \"b\" '\\u0041' '\\q' "
    "\0 \ud800 é \n \t"
).split(" ")
SOUP = st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join) | st.lists(
    st.sampled_from(WORDS), max_size=25
).map("".join)
LIKELY = st.fixed_dictionaries(
    {
        "field": st.sampled_from(["a", "a.b", "_id", "", "."]) | JSON,
        "op": st.sampled_from(OPERATORS) | JSON,
        "value": JSON
        | st.fixed_dictionaries({"type": st.sampled_from(["int64", "array", "bool"]), "value": JSON}),
    }
)


def attempt(action: Callable[[Any], Any], given: Any) -> tuple[Any, str | None]:
    """Return the result of the action, or the code of its FilterError. Any other error fails the test."""
    try:
        return action(given), None
    except FilterError as error:
        assert len(str(error)) < 2_000  # noqa: PT017 - the text must be printable, whatever the error is
        return None, error.code


def run(tree: Any, document: Any) -> None:
    compiled = compile_filter(tree)
    environment = FilterInput(doc=document, id="x")
    value, code = attempt(compiled.evaluate, environment)
    assert code in (None, "E1203")
    outcome = (
        FilterOutcome.FAILED
        if code or not isinstance(value, bool)
        else FilterOutcome.MATCH
        if value
        else FilterOutcome.NO_MATCH
    )
    assert compiled.outcome(environment) is outcome
    assert compiled.matches(environment) is (outcome is FilterOutcome.MATCH)


@given(SOUP | st.text(max_size=40), JSON)
def test_any_text_is_accepted_or_rejected(source: str, document: Any) -> None:
    tree, code = attempt(parse_cel, source)
    assert code in (None, "E1201", "E1202")
    if code is None:
        run(tree, document)


@given(JSON | st.lists(LIKELY, max_size=3), JSON)
def test_any_json_as_filters_is_accepted_or_rejected(filters: Any, document: Any) -> None:
    tree, code = attempt(parse_filters, filters)
    assert code in (None, "E1201", "E1202")
    if code is None:
        run(tree, document)


@given(
    JSON
    | st.fixed_dictionaries(
        {"collection": st.just("c") | JSON},
        optional={
            "filters": st.lists(LIKELY, max_size=2) | JSON,
            "filter": SOUP | JSON,
            "orderBy": st.lists(st.fixed_dictionaries({"field": JSON, "direction": JSON}), max_size=2) | JSON,
            "limit": JSON,
            "startAfter": JSON,
        },
    )
)
def test_any_json_as_a_query_is_accepted_or_rejected(query: Any) -> None:
    assert attempt(parse_query, query)[1] in (None, "E1201", "E1202")


LARGE = FilterLimits(source_bytes=4_000_000)


@pytest.mark.parametrize("limits", [FilterLimits(), LARGE])
@pytest.mark.parametrize(
    "source",
    [
        "(" * 10_000, "[" * 10_000, "!" * 10_000, "-" * 10_000, "doc" + ".a" * 10_000, "doc" + "[0]" * 10_000,
        "(" * 10_000 + "1" + ")" * 10_000, "size(" * 10_000, "true ? " * 10_000, "true ? 1 : " * 10_000,
        "1" + "+1" * 100_000, "1" + "<1" * 100_000, "a" * 1_000_000, "9" * 1_000_000, "1e" + "9" * 1_000_000,
        "0x" + "f" * 1_000_000, "." * 100_000, "'" * 99_999, "'" + "\\" * 100_001, "'''" + "\\'" * 100_000,
        "r'" + "x" * 1_000_000, " " * 1_000_000, "//" * 500_000, "\0" * 100, "\ud800", "'\ud800'", "doc.\udfff",
        "[" + "1," * 100_000 + "]", " || ".join(["true"] * 50_000), "duration('" + "1h" * 100_000 + "')",
        "duration('" + "9" * 100_000 + "h')", "timestamp('" + "9" * 100_000 + "')", "doc.a in [" + "'a'," * 257 + "]",
    ],
    ids=lambda value: ascii(value)[:24] if isinstance(value, str) else "",
)  # fmt: skip
def test_hostile_texts(source: str, limits: FilterLimits) -> None:
    _, code = attempt(lambda text: parse_cel(text, limits), source)
    assert code in ("E1201", "E1202")


def test_hostile_lists() -> None:
    deep: Any = []
    for _ in range(10_000):
        deep = [deep]
    nested: Any = {"type": "array", "value": []}
    for _ in range(10_000):
        nested = {"type": "array", "value": [nested]}
    wrong: Any = {"field": "a", "op": "=="}
    for value in (deep, nested, {"type": deep}, 10**5000, -(10**5000), math.nan, "\ud800", b"x", object()):
        for op in ("==", "in", "contains", ">"):
            with pytest.raises(FilterError):
                parse_filters([wrong | {"op": op, "value": value}])
            with pytest.raises(FilterError):
                parse_filters([wrong | {"op": op, "value": [value]}])
    for field in (deep, "a." * 5_000 + "a", "." * 10_000, "a" * 1_000_000, "\ud800", 10**5000):
        with pytest.raises(FilterError):
            parse_filters([wrong | {"field": field, "value": 1}])
    with pytest.raises(FilterError):
        parse_filters([deep])

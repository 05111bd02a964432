"""Arithmetic: every pair of operand types; Int arithmetic compared with 64-bit machine integers."""

from __future__ import annotations

import ctypes
import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from vedette.errors import QueryError
from vedette.language.functions.operators import (
    ARITHMETIC,
    negation_for,
    negation_type,
    operator_for,
    result_type,
)
from vedette.language.types import (
    ANY_VALUE,
    BOOL,
    DURATION,
    FLOAT,
    ID,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    list_of,
    node_type,
    union_of,
)
from vedette.language.value_kinds import type_of_value
from vedette.values import INT_MAX, INT_MIN

DAY = datetime(2024, 2, 29, tzinfo=UTC)
HOUR = timedelta(hours=1)
NUMBER = union_of((INT, FLOAT))


def run(op, left, right):
    """Apply the operator with the static types of the values, and again with unknown types."""
    known = operator_for(op, type_of_value(left), type_of_value(right))(left, right)
    found = operator_for(op, ANY_VALUE, ANY_VALUE)(left, right)
    assert type(known) is type(found)
    assert known == found or known != known  # noqa: PLR0124 - NaN
    return known


@pytest.mark.parametrize(
    ("left", "op", "right", "expected"),
    [
        (2, "+", 3, 5),
        (INT_MAX, "+", 1, INT_MIN),
        (INT_MIN, "-", 1, INT_MAX),
        (INT_MAX, "*", 2, -2),
        (INT_MIN, "/", -1, INT_MIN),
        (INT_MIN, "%", -1, 0),
        (7, "/", 2, 3),
        (-7, "/", 2, -3),
        (7, "/", -2, -3),
        (-7, "/", -2, 3),
        (-7, "%", 2, -1),
        (7, "%", -2, 1),
        (1, "+", 0.5, 1.5),
        (0.5, "-", 1, -0.5),
        (2, "*", 1.5, 3.0),
        (7, "/", 2.0, 3.5),
        (7.5, "%", 2, 1.5),
        (-7.5, "%", 2.0, -1.5),
        (1.0, "/", 0.0, math.inf),
        (-1.0, "/", 0, -math.inf),
        (1.0, "/", -0.0, -math.inf),
        (1, "/", 0.0, math.inf),
        (1e308, "*", 10.0, math.inf),
        (DAY, "+", HOUR, datetime(2024, 2, 29, 1, tzinfo=UTC)),
        (HOUR, "+", DAY, datetime(2024, 2, 29, 1, tzinfo=UTC)),
        (DAY, "-", HOUR, datetime(2024, 2, 28, 23, tzinfo=UTC)),
        (DAY, "+", 1500, datetime(2024, 2, 29, 0, 0, 1, 500_000, tzinfo=UTC)),
        (1500, "+", DAY, datetime(2024, 2, 29, 0, 0, 1, 500_000, tzinfo=UTC)),
        (DAY, "-", 1000, datetime(2024, 2, 28, 23, 59, 59, tzinfo=UTC)),
        (DAY, "-", DAY - HOUR, HOUR),
        (HOUR, "+", HOUR, timedelta(hours=2)),
        (HOUR, "-", timedelta(hours=2), -HOUR),
        (HOUR, "+", 1000, timedelta(seconds=3601)),
        (1000, "+", HOUR, timedelta(seconds=3601)),
        (HOUR, "-", 1000, timedelta(seconds=3599)),
        (HOUR, "*", 2, timedelta(hours=2)),
        (2, "*", HOUR, timedelta(hours=2)),
        (HOUR, "/", 7, timedelta(milliseconds=514_285)),
        (-HOUR, "/", 7, timedelta(milliseconds=-514_285)),
        (timedelta(minutes=150), "/", HOUR, 2),
        (-timedelta(minutes=150), "/", HOUR, -2),
        ("a", "++", "b", "ab"),
        ("a", "+", "b", "ab"),
        ([1], "++", [2], [1, 2]),
    ],
)
def test_arithmetic(left, op, right, expected):
    found = run(op, left, right)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("left", "op", "right"), [(0.0, "/", 0.0), (1.0, "%", 0.0), (math.inf, "%", 2.0), (math.nan, "/", 0)]
)
def test_floats_that_give_nan(left, op, right):
    assert math.isnan(run(op, left, right))


@pytest.mark.parametrize(
    ("left", "op", "right"),
    [(1, "/", 0), (1, "%", 0), (-1, "/", 0), (-1, "%", 0), (HOUR, "/", 0), (HOUR, "/", timedelta())],
)
def test_division_by_zero(left, op, right):
    with pytest.raises(QueryError, match="Division by zero") as caught:
        run(op, left, right)
    assert caught.value.code == "E2101"


@pytest.mark.parametrize(
    ("left", "op", "right"),
    [
        (DAY, "+", timedelta.max),
        (DAY, "-", timedelta.max),
        (DAY, "+", INT_MAX),
        (DAY, "-", INT_MAX),
        (timedelta.max, "+", timedelta.max),
        (timedelta.max, "*", INT_MAX),
        (timedelta.min, "-", timedelta.max),
    ],
)
def test_results_out_of_range(left, op, right):
    with pytest.raises(QueryError) as caught:
        run(op, left, right)
    assert caught.value.code == "E2102"


@pytest.mark.parametrize(
    ("op", "left", "right", "expected"),
    [
        ("+", INT, INT, INT),
        ("/", INT, INT, INT),
        ("+", INT, FLOAT, FLOAT),
        ("-", TIMESTAMP, TIMESTAMP, DURATION),
        ("/", DURATION, DURATION, INT),
        ("++", list_of(INT), list_of(INT), list_of(INT)),
        ("++", list_of(INT), list_of(STRING), list_of(ANY_VALUE)),
        ("+", STRING, INT, None),
        ("++", STRING, INT, None),
        ("+", TIMESTAMP, TIMESTAMP, None),
        ("-", INT, TIMESTAMP, None),
        ("*", DURATION, DURATION, None),
        ("%", DURATION, INT, None),
        ("+", BOOL, INT, None),
        ("+", ID, ID, None),
        ("+", node_type("A"), INT, None),
        ("+", NULL, INT, NULL),
        ("+", NULL, NULL, NULL),
        ("*", NULL, STRING, None),
        ("+", NULL, ANY_VALUE, NULL),
        ("+", ANY_VALUE, INT, ANY_VALUE),
        ("++", ANY_VALUE, STRING, STRING),
        ("*", ANY_VALUE, STRING, None),
        ("%", ANY_VALUE, BOOL, None),
        ("+", NUMBER, INT, NUMBER),
        ("+", NUMBER, FLOAT, FLOAT),
        ("+", union_of((INT, STRING)), INT, INT),
        ("*", union_of((BOOL, STRING)), INT, None),
    ],
)
def test_result_types(op, left, right, expected):
    assert result_type(op, left, right) == expected


def test_operators_on_unions_choose_by_value():
    add = operator_for("+", NUMBER, NUMBER)
    assert (add(1, 2), add(1, 2.0)) == (3, 3.0)
    with pytest.raises(QueryError, match="Invalid operator '\\+' for types Bool and Int") as caught:
        add(True, 1)
    assert caught.value.code == "E2102"


def test_unary_minus():
    assert [negation_type(each) for each in (INT, FLOAT, DURATION, STRING, TIMESTAMP)] == [
        INT,
        FLOAT,
        DURATION,
        None,
        None,
    ]
    assert negation_type(NUMBER) == NUMBER
    assert negation_type(ANY_VALUE) == ANY_VALUE
    assert negation_type(NULL) == NULL
    assert negation_type(union_of((STRING, BOOL))) is None
    assert negation_for(INT)(INT_MIN) == INT_MIN
    assert negation_for(ANY_VALUE)(HOUR) == -HOUR
    with pytest.raises(QueryError, match="for type String"):
        negation_for(ANY_VALUE)("x")
    with pytest.raises(QueryError):
        negation_for(DURATION)(timedelta.max)


# Properties

EDGES = st.sampled_from([INT_MIN, INT_MIN + 1, -1, 0, 1, INT_MAX - 1, INT_MAX])
INTS = EDGES | st.integers(INT_MIN, INT_MAX)
FLOATS = st.floats() | st.integers(-5, 5).map(float)


def machine(number: int) -> int:
    return ctypes.c_int64(number).value


@given(INTS, INTS)
def test_integers_wrap_at_64_bits(left, right):
    assert run("+", left, right) == machine(left + right)
    assert run("-", left, right) == machine(left - right)
    assert run("*", left, right) == machine(left * right)
    assert negation_for(INT)(left) == machine(-left)


@given(INTS, INTS)
def test_integer_division_truncates_as_in_c(left, right):
    assume(right != 0)
    quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    assert run("/", left, right) == machine(quotient)
    remainder = run("%", left, right)
    assert remainder == left - quotient * right
    assert remainder == 0 or (remainder < 0) == (left < 0)


@given(st.sampled_from(sorted(ARITHMETIC - {"++"})), FLOATS | INTS, FLOATS)
def test_floats_never_raise(op, left, right):
    assert type(run(op, left, right)) is float


VALUES = st.one_of(
    st.none().map(lambda _: True),
    INTS,
    FLOATS,
    st.text(max_size=3),
    st.datetimes(timezones=st.just(UTC)),
    st.timedeltas(),
    st.lists(st.integers(0, 3), max_size=2),
)


@given(st.sampled_from(sorted(ARITHMETIC)), VALUES, VALUES)
def test_the_value_has_the_declared_result_type(op, left, right):
    promised = result_type(op, type_of_value(left), type_of_value(right))
    if promised is None:
        with pytest.raises(QueryError):
            operator_for(op, ANY_VALUE, ANY_VALUE)(left, right)
        return
    try:
        found = run(op, left, right)
    except QueryError as error:
        assert error.code in ("E2101", "E2102")  # noqa: PT017 - either is right
        return
    assert type_of_value(found).kind == promised.kind

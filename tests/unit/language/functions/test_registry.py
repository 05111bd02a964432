"""Every built-in function: values, edge cases, static types."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.element import Element
from vedette.errors import QueryError
from vedette.language.functions.registry import FUNCTIONS, ArgumentTypeError, callable_for
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

SUNDAY = datetime(2024, 3, 3, 4, 5, 6, 789_000, tzinfo=UTC)


def call(name, *arguments):
    """Call a function as the compiler does: with the static types of the values, and again with unknown types."""
    function = FUNCTIONS[name]
    types = tuple(map(type_of_value, arguments))
    promised = function.result_type(types)
    found = callable_for(function, types)(*arguments)
    assert promised.kind == "Any" or type_of_value(found).kind == promised.kind
    uncertain = callable_for(function, (ANY_VALUE,) * len(arguments))(*arguments)
    assert uncertain == found or found != found  # noqa: PLR0124 - NaN
    return found


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("length", ("",), 0),
        ("length", ("añ日😀",), 4),
        ("length", ([1, 2],), 2),
        ("len", ("abc",), 3),
        ("lower", ("ÀB",), "àb"),
        ("upper", ("straße",), "STRASSE"),
        ("trim", ("\u2003 a b\t\n",), "a b"),
        ("contains", ("abc", "b"), True),
        ("contains", ("abc", ""), True),
        ("contains", ("abc", "B"), False),
        ("starts_with", ("abc", "ab"), True),
        ("starts_with", ("abc", ""), True),
        ("ends_with", ("abc", "bc"), True),
        ("ends_with", ("abc", "b"), False),
        ("substring", ("hello", 1), "ello"),
        ("substring", ("hello", 1, 3), "ell"),
        ("substring", ("hello", -2, 3), "hel"),
        ("substring", ("hello", 9), ""),
        ("substring", ("hello", 9, 2), ""),
        ("substring", ("hello", 3, 99), "lo"),
        ("substring", ("hello", 1, -1), ""),
        ("substring", ("hello", 1, 0), ""),
        ("substring", ("😀b", 1, 1), "b"),
        ("replace", ("banana", "an", "<>"), "b<><>a"),
        ("replace", ("banana", "a", ""), "bnn"),
        ("split", ("a,b,,c", ","), ["a", "b", "", "c"]),
        ("split", ("abc", ""), ["a", "b", "c"]),
        ("split", ("", ","), [""]),
        ("split", ("", ""), []),
        ("abs", (-3,), 3),
        ("abs", (-2.5,), 2.5),
        ("abs", (INT_MIN,), INT_MIN),
        ("abs", (timedelta(seconds=-3),), timedelta(seconds=3)),
        ("min", (2, 3), 2),
        ("min", (2, 1.5), 1.5),
        ("min", (1, 1.5), 1.0),
        ("max", (2, 1.5), 2.0),
        ("max", ("a", "b"), "b"),
        ("min", (SUNDAY, SUNDAY + timedelta(1)), SUNDAY),
        ("floor", (2.9,), 2),
        ("floor", (-2.1,), -3),
        ("ceil", (2.1,), 3),
        ("ceil", (-2.9,), -2),
        ("floor", (7,), 7),
        ("round", (7,), 7),
        ("round", (2.5,), 3),
        ("round", (-2.5,), -2),
        ("round", (-2.6,), -3),
        ("round", (0.49999999999999994,), 0),
        ("round", (-0.5,), 0),
        ("round", (4503599627370497.5,), 4503599627370498),
        ("is_nan", (math.nan,), True),
        ("is_nan", (1.0,), False),
        ("is_nan", (1,), False),
        ("is_null", (None,), True),
        ("is_null", (0,), False),
        ("is_not_null", (None,), False),
        ("is_not_null", ("",), True),
        ("year", (SUNDAY,), 2024),
        ("month", (SUNDAY,), 3),
        ("day", (SUNDAY,), 3),
        ("hour", (SUNDAY,), 4),
        ("minute", (SUNDAY,), 5),
        ("second", (SUNDAY,), 6),
        ("millisecond", (SUNDAY,), 789),
        ("day_of_week", (SUNDAY,), 0),
        ("day_of_week", (SUNDAY - timedelta(1),), 6),
        ("timestamp", ("1970-01-01",), datetime(1970, 1, 1, tzinfo=UTC)),
        ("timestamp", ("2024-03-03T04:05:06.789Z",), SUNDAY),
        ("timestamp", ("2024-03-03T05:05:06.7899+01:00",), SUNDAY),
        ("timestamp", ("2024-03-03T04:05",), SUNDAY.replace(second=0, microsecond=0)),
        ("to_milliseconds", (timedelta(seconds=1.5),), 1500),
        ("to_seconds", (timedelta(seconds=-1.5),), -1),
        ("to_minutes", (timedelta(seconds=119),), 1),
        ("to_hours", (timedelta(minutes=119),), 1),
        ("to_days", (timedelta(hours=47),), 1),
        ("to_days", (timedelta(hours=-47),), -1),
        ("type_of", ("x",), "String"),
        ("type_of", (True,), "Bool"),
        ("type_of", (1,), "Int"),
        ("type_of", (1.0,), "Float"),
        ("type_of", (SUNDAY,), "Timestamp"),
        ("type_of", (timedelta(1),), "Duration"),
        ("type_of", ([],), "List"),
        ("type_of", (Element("t1", "Task", ()),), "Task"),
    ],
)
def test_functions(name, arguments, expected):
    found = call(name, *arguments)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(("left", "right"), [(math.nan, 1), (1, math.nan), (math.nan, math.inf)])
def test_nan_gives_nan(left, right):
    assert math.isnan(call("min", left, right))
    assert math.isnan(call("max", left, right))


@pytest.mark.parametrize(
    ("name", "arguments", "code", "words"),
    [
        ("replace", ("abc", "", "x"), "E2102", "must not be empty"),
        ("replace", ("a" * 5000, "a", "b" * 5000), "E2103", "more than"),
        ("round", (math.nan,), "E2102", "cannot be rounded to an Int"),
        ("floor", (math.inf,), "E2102", "cannot be rounded to an Int"),
        ("ceil", (1e19,), "E2102", "cannot be rounded to an Int"),
        ("timestamp", ("yesterday",), "E2102", "write it like"),
        ("timestamp", ("2024-02-30",), "E2102", "write it like"),
        ("timestamp", ("2024-01-01T00:00:60Z",), "E2102", "write it like"),
        ("timestamp", ("2024-01-01 00:00",), "E2102", "write it like"),
        ("timestamp", ("20240101",), "E2102", "write it like"),
        ("timestamp", ("1969-12-31T23:59:59Z",), "E2102", "before 1970"),
        ("timestamp", ("0001-01-01T00:00:00+10:00",), "E2102", "before 1970"),
    ],
)
def test_failures(name, arguments, code, words):
    with pytest.raises(QueryError, match=words) as caught:
        call(name, *arguments)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        (
            "is_email",
            ["a@b.co", "first.last+tag@sub.example.org", "o'brien@example.com"],
            [
                "",
                "a",
                "a@b",
                "@b.co",
                "a@",
                "a b@c.de",
                ".a@b.co",
                "a..b@c.de",
                "a@-b.co",
                "a@b.co\n",
                "a@b@c.de",
            ],
        ),
        (
            "is_url",
            ["http://a.b", "https://example.org:8080/x?y=1#z", "HTTPS://LOCALHOST/", "http://[::1]/"],
            [
                "",
                "ftp://a.b",
                "http://",
                "http:///x",
                "//a.b",
                "http://a b",
                "http://a:99999",
                "http://[::1",
                "javascript:alert(1)",
            ],
        ),
        (
            "is_uuid",
            ["123e4567-e89b-12d3-a456-426614174000", "123E4567-E89B-12D3-A456-426614174000"],
            [
                "",
                "123e4567e89b12d3a456426614174000",
                "123e4567-e89b-12d3-a456-42661417400g",
                "{123e4567-e89b-12d3-a456-426614174000}",
            ],
        ),
        ("is_slug", ["a", "a-b", "2024-in-review"], ["", "-a", "a-", "a--b", "A", "a_b", "é", "a\n"]),
        (
            "is_phone",
            ["+4912345678", "+12"],
            ["", "4912345678", "+0123", "+1", "+1234567890123456", "+49 1", "+٤٩"],
        ),
        (
            "is_iso_date",
            ["2024-02-29"],
            ["", "2023-02-29", "2024-2-9", "20240229", "2024-02-29T00:00", "2024-W01-1"],
        ),
        (
            "is_iso_datetime",
            ["2024-02-29T12:00", "2024-02-29T12:00:00.123456789Z", "2024-02-29T12:00:00+02:00"],
            ["", "2024-02-29", "2024-02-29 12:00", "2024-02-29T24:00", "2024-02-29T12:60", "2024-02-29T12"],
        ),
        (
            "is_ipv4",
            ["0.0.0.0", "255.255.255.255"],
            ["", "256.1.1.1", "1.2.3", "01.2.3.4", "1.2.3.4/8", "١.2.3.4"],
        ),
        (
            "is_ipv6",
            ["::", "2001:db8::ff00:42:8329", "::ffff:1.2.3.4"],
            ["", ":::", "1::2::3", "fe80::1%e0", "1.2.3.4"],
        ),
    ],
)
def test_formats(name, good, bad):
    assert [text for text in good if not call(name, text)] == []
    assert [text for text in bad if call(name, text)] == []


NUMBER = union_of((INT, FLOAT))


@pytest.mark.parametrize(
    ("name", "types", "expected"),
    [
        ("length", (INT,), "the argument of length() must be String or List, not Int"),
        ("length", (ID,), "the argument of length() must be String or List, not ID"),
        ("contains", (STRING, INT), "argument 2 of contains() must be String, not Int"),
        ("substring", (STRING, FLOAT), "argument 2 of substring() must be Int, not Float"),
        ("abs", (STRING,), "the argument of abs() must be Int or Float or Duration, not String"),
        ("min", (INT, STRING), "min() needs two values of one type, not Int and String"),
        (
            "max",
            (BOOL, BOOL),
            "argument 1 of max() must be Int or Float or String or Timestamp or Duration, not Bool",
        ),
        ("year", (INT,), "the argument of year() must be Timestamp, not Int"),
        ("to_days", (INT,), "the argument of to_days() must be Duration, not Int"),
        ("lower", (node_type("A"),), "the argument of lower() must be String, not A"),
        ("length", (NULL,), INT),
        ("length", (ANY_VALUE,), INT),
        ("length", (union_of((STRING, INT)),), INT),
        ("split", (STRING, STRING), list_of(STRING)),
        ("abs", (INT,), INT),
        ("abs", (FLOAT,), FLOAT),
        ("min", (INT, INT), INT),
        ("min", (INT, FLOAT), FLOAT),
        ("min", (NULL, FLOAT), FLOAT),
        ("min", (INT, NULL), INT),
        ("min", (ANY_VALUE, INT), ANY_VALUE),
        ("round", (NUMBER,), INT),
        ("coalesce", (NULL, INT), INT),
        ("coalesce", (STRING, INT), union_of((STRING, INT))),
        ("coalesce", (NULL,), NULL),
        ("coalesce", (ANY_VALUE, INT), ANY_VALUE),
        ("now", (), TIMESTAMP),
        ("wall_time", (), TIMESTAMP),
        ("logical_time", (), INT),
        ("current_actor", (), node_type()),
        ("current_session", (), node_type("_Session")),
        ("operation", (), STRING),
        ("timestamp", (STRING,), TIMESTAMP),
        ("abs", (DURATION,), DURATION),
    ],
)
def test_static_types(name, types, expected):
    if isinstance(expected, str):
        with pytest.raises(ArgumentTypeError) as caught:
            FUNCTIONS[name].result_type(types)
        assert str(caught.value) == expected
    else:
        assert FUNCTIONS[name].result_type(types) == expected


def test_values_of_unknown_types_are_checked_at_run_time():
    lower = callable_for(FUNCTIONS["lower"], (ANY_VALUE,))
    assert lower("A") == "a"
    with pytest.raises(QueryError, match="must be String, not Int") as caught:
        lower(1)
    assert caught.value.code == "E2102"
    with pytest.raises(QueryError, match="two values of one type"):
        callable_for(FUNCTIONS["min"], (ANY_VALUE, INT))("a", 1)


def test_functions_are_listed_by_lower_case_name():
    assert all(name == name.lower() == function.name for name, function in FUNCTIONS.items())


def test_context_functions_are_evaluated_by_the_compiler():
    context = {name for name, function in FUNCTIONS.items() if function.needs_context}
    assert context == {
        "now",
        "wall_time",
        "logical_time",
        "current_actor",
        "current_session",
        "operation",
        "target",
        "target_type",
        "target_attr",
    }
    assert [name for name, function in FUNCTIONS.items() if function.lazy] == ["coalesce"]
    assert {name for name, function in FUNCTIONS.items() if function.null_safe} == {"is_null", "is_not_null"}
    with pytest.raises(AssertionError):
        FUNCTIONS["now"].call()


@given(st.floats(-1e15, 1e15))
def test_round_gives_the_nearest_int_and_rounds_half_up(number):
    found = call("round", number)
    assert abs(number - found) <= 0.5
    if abs(number - found) == 0.5:
        assert found > number


@given(st.text(max_size=12), st.integers(-3, 15), st.integers(-3, 15))
def test_substring_is_a_slice(text, start, size):
    begin = max(start, 0)
    assert call("substring", text, start, size) == text[begin : begin + max(size, 0)]
    assert call("substring", text, start) == text[begin:]


@given(st.integers(INT_MIN, INT_MAX) | st.floats(), st.integers(INT_MIN, INT_MAX) | st.floats())
def test_min_and_max_keep_the_type(left, right):
    expected = float if float in (type(left), type(right)) else int
    assert type(call("min", left, right)) is expected
    assert type(call("max", left, right)) is expected


def test_the_largest_int_keeps_its_value():
    assert call("floor", INT_MAX) == INT_MAX

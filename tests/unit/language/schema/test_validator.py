"""Values that an attribute accepts: types, nulls and every value modifier."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.language.schema.schema_cases import define_all
from vedette.errors import AnalysisError, ConstraintViolation, VedetteError
from vedette.language.schema.model import AttributeType
from vedette.language.schema.validator import compile_validator
from vedette.values import INT_MAX, Value

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def attribute(written: str) -> AttributeType:
    return define_all(f"node T {{ a: {written} }} edge e(t: T) {{}}").nodes["T"].attributes["a"]


@pytest.mark.parametrize(
    ("written", "value", "stored"),
    [
        ("String", "x", "x"),
        ("Int", 3, 3),
        ("Float", 3, 3.0),
        ("Float", 0.5, 0.5),
        ("Float", math.inf, math.inf),
        ("Bool", False, False),
        ("Timestamp", EPOCH, EPOCH),
        ("Timestamp", 1000, EPOCH + SECOND),
        ("Timestamp", -1000, EPOCH - SECOND),
        ("Duration", SECOND, SECOND),
        ("Duration", 1000, SECOND),
        ("ID", "x1", "x1"),
        ("T", "n1", "n1"),
        ("any", "n1", "n1"),
        ("edge<e>", "e1", "e1"),
        ("Int | String", 1, 1),
        ("Int | String", "x", "x"),
        ("Float | String", 1, 1.0),
        ("Timestamp | Int", 1, 1),
        ("Int | T", "n1", "n1"),
        ("Int?", None, None),
        ("Int? [>= 5]", None, None),
        ('String? [in: ["a"]]', None, None),
    ],
)
def test_stored_values(written, value, stored):
    found = compile_validator(attribute(written))(value)
    assert found == stored
    assert type(found) is type(stored)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("String", 1),
        ("String", True),
        ("Int", "1"),
        ("Int", 1.0),
        ("Int", True),
        ("Float", True),
        ("Float", "1"),
        ("Bool", 1),
        ("Timestamp", "2024-01-01"),
        ("Timestamp", 1.5),
        ("Timestamp", INT_MAX),
        ("Timestamp", True),
        ("Duration", INT_MAX),
        ("Duration", EPOCH),
        ("T", 1),
        ("Int | String", True),
        ("Int | String", [1]),
        ("String", ["x"]),
    ],
)
def test_wrong_types(written, value):
    with pytest.raises(AnalysisError, match="attribute 'a' of type 'T' is declared") as caught:
        compile_validator(attribute(written))(value)
    assert caught.value.code == "E2003"


@pytest.mark.parametrize(
    ("written", "value", "code", "words"),
    [
        ("Int [required]", None, "E3002", "is required and cannot be null"),
        ("Int", None, "E3013", "cannot be null: it is declared Int, not Int?"),
        ("Int = 3", None, "E3013", "cannot be null"),
        ("Int [>= 0]", -1, "E3005", "must be at least 0 (range), not -1"),
        ("Int [> 0]", 0, "E3005", "must be greater than 0"),
        ("Int [<= 9]", 10, "E3005", "must be at most 9"),
        ("Int [< 9]", 9, "E3005", "must be less than 9"),
        ("Int [-1..5]", 6, "E3005", "at most 5"),
        ("Float [0.5..1]", 0, "E3005", "at least 0.5"),
        ("Float [0..1]", math.nan, "E3005", "at least 0"),
        ("Timestamp [>= 0]", -1, "E3005", "at least @1970-01-01T00:00:00.000Z"),
        ("Duration [< 1000]", SECOND, "E3005", "less than 1s"),
        ("Int | Float [< 3]", 3.5, "E3005", "less than 3"),
        ('String [in: ["a", "b"]]', "c", "E3006", 'must be in ["a", "b"], not "c"'),
        ("Int [in: [1, -2]]", 2, "E3006", "must be in [1, -2]"),
        ("Float [in: [1]]", 2, "E3006", "must be in [1.0]"),
        ("Timestamp [in: [@1970-01-01]]", 1, "E3006", "must be in"),
        ("Bool [in: [true]]", False, "E3006", "must be in [true]"),
        ("String [length: 1..3]", "", "E3007", "length of 1..3 characters"),
        ("String [length: 0..2]", "abc", "E3007", "length"),
        ('String [match: "[a-z]+"]', "abC", "E3008", 'must match the pattern "[a-z]+", not "abC"'),
        ('String [match: "[a-z]+"]', "abc\n", "E3008", "must match"),
        ('String [match: "^a"]', "ba", "E3008", "must match"),
        ('String [match: ".*"]', "a" * 20_000, "E3008", "must match"),
        ("String [format: email]", "x", "E3009", "must have the format email"),
        ("String [format: ipv4]", "1.2.3", "E3009", "must have the format ipv4"),
        ('String [length: 1..3, in: ["abcd"]]', "abcd", "E3007", "length"),
    ],
)
def test_violations(written, value, code, words):
    with pytest.raises(ConstraintViolation) as caught:
        compile_validator(attribute(written))(value)
    error = caught.value
    assert error.code == code
    assert words in error.text
    assert error.text.startswith("attribute 'a' of type 'T' ")
    assert error.fields["attribute"] == "a"


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("Int [0..5]", 0),
        ("Int [0..5]", 5),
        ("Float [0..5]", 5),
        ("Timestamp [>= 0]", 0),
        ("Float [in: [1]]", 1),
        ("String [length: 1..1]", "😀"),
        ('String [match: "^a"]', "abc"),
        ('String [match: "a$"]', "cba"),
        ('String [match: "a|b"]', "b"),
        ("String [format: slug]", "a-b"),
        ("Duration [in: [1s]]", 1000),
    ],
)
def test_values_that_pass(written, value):
    compile_validator(attribute(written))(value)


def test_the_error_names_the_type_and_shortens_the_value():
    check = compile_validator(attribute("String [length: 0..5]"), "Sub")
    with pytest.raises(ConstraintViolation) as caught:
        check("x" * 500)
    assert "of type 'Sub'" in caught.value.text
    assert len(caught.value.text) < 200


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-20, 20),
    st.floats(),
    st.text(max_size=4),
    st.just(EPOCH),
    st.timedeltas(),
)
WRITTEN = [
    "Int",
    "Int?",
    "Float [0..5]",
    "String [length: 0..2]",
    'String? [match: "[a-c]*"]',
    "Timestamp [>= 0]",
    "Int | String",
    'String [in: ["a"]]',
    "T?",
]


@given(st.sampled_from(WRITTEN), VALUES)
def test_a_stored_value_passes_validation_again(written, value):
    check = compile_validator(attribute(written))
    try:
        stored: Value = check(value)
    except VedetteError:
        return
    again = check(stored)
    assert again == stored
    assert type(again) is type(stored)

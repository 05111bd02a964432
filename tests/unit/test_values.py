"""Values of the graph: canonical forms, texts and JSON."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from vedette.values import (
    duration_to_text,
    timestamp_from_text,
    timestamp_to_ms,
    timestamp_to_text,
    to_canonical,
    to_json,
    wrap_int,
)

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("number", "wrapped"),
    [(0, 0), (2**63 - 1, 2**63 - 1), (2**63, -(2**63)), (-(2**63) - 1, 2**63 - 1), (2**64, 0)],
)
def test_wrap_int(number: int, wrapped: int) -> None:
    assert wrap_int(number) == wrapped


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-01-31T12:00:00Z", 0),
        ("2026-01-31T12:00:00", 0),
        ("2026-01-31T13:00:00+01:00", 0),
        ("2026-01-31T12:00:00.0019Z", 0.001),
    ],
)
def test_timestamps_are_utc_milliseconds(text: str, seconds: float) -> None:
    assert timestamp_from_text(text) == NOON + timedelta(seconds=seconds)


def test_timestamp_round_trip() -> None:
    moment = NOON + timedelta(milliseconds=7)
    assert timestamp_to_text(moment) == "2026-01-31T12:00:00.007Z"
    assert timestamp_from_text(timestamp_to_text(moment)) == moment
    assert timestamp_to_ms(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)) == 1_000


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(days=14), "2w"),
        (timedelta(seconds=90), "90s"),
        (timedelta(minutes=-2), "-2m"),
        (timedelta(milliseconds=1500), "1500ms"),
    ],
)
def test_duration_to_text(duration: timedelta, text: str) -> None:
    assert duration_to_text(duration) == text


@pytest.mark.parametrize(
    ("value", "canonical"),
    [
        ((1, [2, "x"]), [1, [2, "x"]]),
        (datetime(2026, 1, 31, 13, tzinfo=timezone(timedelta(hours=1))), NOON),
        (timedelta(microseconds=1999), timedelta(milliseconds=1)),
        (None, None),
    ],
)
def test_to_canonical(value: Any, canonical: Any) -> None:
    assert to_canonical(value) == canonical


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (2**63, ValueError, "does not fit into 64 bits"),
        (2**200, ValueError, "of 201 bits"),
        ("\udc00", ValueError, "lone surrogate"),
        ({}, TypeError, "dict has no place in the graph"),
        (b"x", TypeError, "bytes has no place in the graph"),
    ],
)
def test_values_without_a_canonical_form(value: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        to_canonical(value)


def test_deeply_nested_lists_are_refused() -> None:
    value: list[Any] = []
    for _ in range(25):
        value = [value]
    with pytest.raises(ValueError, match="nested more than 20 deep"):
        to_canonical(value)


def test_to_json() -> None:
    value = {"t": NOON, "d": timedelta(seconds=1), "f": [math.nan, math.inf, -math.inf, 1.5], "n": None}
    assert to_json(value) == {
        "t": "2026-01-31T12:00:00.000Z",
        "d": 1_000,
        "f": ["NaN", "Infinity", "-Infinity", 1.5],
        "n": None,
    }

"""Options of a WATCH statement: values, defaults and errors."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from vedette.errors import WatchError
from vedette.language.parser import parse_statement
from vedette.language.syntax.expressions import Expression, Literal
from vedette.language.syntax.statements import Watch
from vedette.watch.options import InitialSpec, OrderingSpec, WatchOptions, WindowSpec, read_options


def evaluate(expression: Expression) -> Any:
    assert isinstance(expression, Literal)
    return expression.value


def read(options: str, base: WatchOptions | None = None) -> WatchOptions:
    statement = parse_statement(f"WATCH t: Task [{options}] RETURN t.title")
    assert isinstance(statement, Watch)
    return read_options(statement.options, evaluate, base)


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("mode: consume", "mode", "consume"),
        ("buffer: 5", "buffer", 5),
        ("max_redeliveries: 0", "max_redeliveries", 0),
        ("ack_timeout: 2m", "ack_timeout", timedelta(minutes=2)),
        ('group: "workers"', "group", "workers"),
        ("deliver_on: tick", "deliver_on", "tick"),
        (
            "window: tumbling(5s)",
            "window",
            WindowSpec("tumbling", timedelta(seconds=5), timedelta(seconds=5)),
        ),
        (
            "window: sliding(10s, 2s)",
            "window",
            WindowSpec("sliding", timedelta(seconds=10), timedelta(seconds=2)),
        ),
        ("initial: none", "initial", InitialSpec("none")),
        ("ordering: causal", "ordering", OrderingSpec("causal")),
    ],
)
def test_value(text: str, field: str, value: Any) -> None:
    assert getattr(read(text), field) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bufer: 5", "there is no such option; known are"),
        ("buffer: 0", "allowed is a positive integer, got 0"),
        ("buffer: 1.5", "allowed is a positive integer"),
        ("mode: take", "allowed are watch, consume"),
        ("buffer: 5, buffer: 6", "specified twice"),
        ("ack_timeout: 0s", "ack_timeout"),
        ("delivery: reliable, on_full: drop", "a reliable watch never drops"),
        ("mode: consume, window: tumbling(5s)", "a consume watch delivers one by one"),
        ("branch: main", "branching is not available"),
        ('group: ""', "allowed is a non-empty String"),
    ],
)
def test_error(text: str, message: str) -> None:
    with pytest.raises(WatchError, match=message) as caught:
        read(text)
    assert caught.value.code == "E8009"
    assert caught.value.fields["option"] in text


def test_options_are_read_on_top_of_a_base() -> None:
    base = read("mode: consume, buffer: 7")
    assert read("buffer: 8", base) == read("mode: consume, buffer: 8")


def test_defaults() -> None:
    assert read_options((), evaluate) == WatchOptions()

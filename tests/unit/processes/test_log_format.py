"""Log lines as text and as JSON, and what they leave out."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from vedette.errors import ConstraintViolation, StoreError
from vedette.processes.log_format import JsonFormatter, TextFormatter, exception_summary, exception_traceback

SECRET = "hunter2"


def record(message: str, *args: Any, error: BaseException | None = None, **ids: Any) -> logging.LogRecord:
    exc_info = (type(error), error, error.__traceback__) if error is not None else None
    made = logging.getLogger("vedette.engine.triggers").makeRecord(
        "vedette.engine.triggers", logging.WARNING, __file__, 1, message, args, exc_info, extra=ids
    )
    made.created = 1_700_000_000.25
    return made


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as caught:
        return caught


def test_a_text_line_has_time_level_process_logger_sentence_and_ids() -> None:
    line = TextFormatter("engine").format(
        record("Trigger %s failed", "w1", action="trigger.failed", watch="w1")
    )
    assert line == (
        "2023-11-14T22:13:20.250Z warning engine vedette.engine.triggers: Trigger w1 failed "
        "action=trigger.failed watch=w1"
    )


def test_a_json_line_is_one_object() -> None:
    text = JsonFormatter("engine").format(record("Two\nlines", action="a.b", numbers=[1, 2], actor=None))
    assert "\n" not in text
    found = json.loads(text)
    assert found.pop("pid") > 0
    assert found == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "warning",
        "process": "engine",
        "logger": "vedette.engine.triggers",
        "message": "Two\nlines",
        "action": "a.b",
        "numbers": [1, 2],
        "actor": None,
    }


def test_an_id_with_spaces_is_quoted_and_control_characters_stay_on_the_line() -> None:
    line = TextFormatter("engine").format(record("A\nB", action="x", sub="a b\n2023 fake line", empty=""))
    assert "\n" not in line
    assert 'sub="a b\\n2023 fake line" empty=""' in line


@pytest.mark.parametrize(
    ("error", "summary"),
    [
        (ValueError(f"bad value {SECRET}"), "ValueError"),
        (KeyError(SECRET), "KeyError"),
        (ConstraintViolation("E3003", f"'{SECRET}' is taken"), "E3003 UNIQUE"),
        (StoreError("E6001", "the disk of data/x is full"), "E6001 WRITE_FAILED: the disk of data/x is full"),
        (FileNotFoundError(2, "No such file", "a.txt"), "FileNotFoundError: [Errno 2] No such file: 'a.txt'"),
    ],
)
def test_the_text_of_an_exception_is_kept_only_if_it_cannot_quote_a_value(
    error: Exception, summary: str
) -> None:
    assert exception_summary(error) == summary


def test_an_error_of_spark_keeps_its_first_line() -> None:
    kind = type("Py4JJavaError", (Exception,), {"__module__": "py4j.protocol"})
    assert exception_summary(kind(f"An error occurred\n{SECRET}")) == "Py4JJavaError: An error occurred"


@pytest.mark.parametrize("formatter", [TextFormatter("engine"), JsonFormatter("engine")])
def test_a_log_line_never_quotes_the_value_in_an_exception(formatter: logging.Formatter) -> None:
    error = raised(ValueError(SECRET), raised(KeyError(SECRET)))
    made = record("Failed: %s", error, error=error, action="x", problem=error)
    line = formatter.format(made)
    assert SECRET not in line
    assert "Failed: ValueError" in line
    assert "raise error from cause" in line, "the frames are there"
    made = record("%(error)s", {"error": error}, action="x")
    assert SECRET not in formatter.format(made)
    made = record("x")
    made.msg, made.args = error, ()
    assert SECRET not in formatter.format(made)


def test_a_traceback_shows_causes_first_and_is_bounded() -> None:
    error = raised(ValueError("b"), raised(KeyError("a")))
    text = exception_traceback(error)
    assert text.index("KeyError") < text.index("which led to") < text.index("ValueError")
    error.__cause__ = error
    assert exception_traceback(error).count("ValueError") == 10


@pytest.mark.parametrize("formatter", [TextFormatter("engine"), JsonFormatter("engine")])
@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://ann:hunter2@db.example:5432/shop", "postgresql://ann:***@db.example:5432/shop"),
        ("mongodb://ann:hunter2@db.example", "mongodb://ann:***@db.example"),
        ("host=db.example password=hunter2 user=ann", "host=db.example password=*** user=ann"),
        ("http://127.0.0.1:7708/a@b", "http://127.0.0.1:7708/a@b"),
    ],
)
def test_a_password_in_an_address_is_masked(formatter: logging.Formatter, address: str, shown: str) -> None:
    for made in (
        record("Cannot open %s", address, action="x"),
        record("Failed: %s", StoreError("E6003", f"no server at {address}"), action="x"),
    ):
        line = formatter.format(made)
        assert SECRET not in line
        assert shown in line

"""Errors: their text, codes, and copies in other processes."""

from __future__ import annotations

import pickle

import pytest

from vedette.errors import CODES, RETRYABLE, ParseError, TransactionError, VedetteError


def test_text_has_category_code_name_and_message() -> None:
    error = TransactionError("E5002", "Another transaction changed 'a'", fields={"id": "a"})
    assert str(error) == f"transaction error: E5002 {CODES['E5002']}: Another transaction changed 'a'"
    assert (error.code, error.name, error.fields) == ("E5002", CODES["E5002"], {"id": "a"})


def test_only_listed_codes_are_retryable() -> None:
    assert VedetteError("E5002", "x").retryable
    assert not VedetteError("E1001", "x").retryable
    assert set(CODES) >= RETRYABLE


def test_unknown_code_is_a_programming_error() -> None:
    with pytest.raises(KeyError):
        VedetteError("E0000", "x")


def test_pickled_error_keeps_its_fields() -> None:
    copy = pickle.loads(pickle.dumps(ParseError("E1001", "text", fields={"line": 3})))
    assert (type(copy), str(copy), copy.fields) == (
        ParseError,
        f"parse error: E1001 {CODES['E1001']}: text",
        {"line": 3},
    )

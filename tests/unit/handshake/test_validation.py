"""Checks of configuration values."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from vedette.errors import FolderError
from vedette.handshake.validation import (
    check_collection_name,
    is_number,
    is_utf8,
    require_increasing,
    require_integers,
    require_positive,
)


def test_error_names_field_value_and_expectation() -> None:
    with pytest.raises(FolderError, match="'low' cannot be 0: it must be a whole number from 1") as caught:
        require_integers(SimpleNamespace(low=0), "low")
    assert caught.value.fields == {"field": "low", "value": 0}


@pytest.mark.parametrize("value", [True, 1.5, "3", 0])
def test_require_integers(value: object) -> None:
    with pytest.raises(FolderError, match="E4502"):
        require_integers(SimpleNamespace(n=value), "n")


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), True])
def test_require_positive(value: object) -> None:
    with pytest.raises(FolderError, match="E4502"):
        require_positive(SimpleNamespace(n=value), "n")


def test_require_increasing() -> None:
    require_increasing(SimpleNamespace(a=1, b=2, c=3), "a", "b", "c")
    with pytest.raises(FolderError, match="'c' cannot be 2: it must be greater than 'b', which is 2"):
        require_increasing(SimpleNamespace(a=1, b=2, c=2), "a", "b", "c")


@pytest.mark.parametrize("name", [".", "..", "a/b", "a:b", "line\nbreak", "x" * 256])
def test_collection_names_that_are_refused(name: str) -> None:
    with pytest.raises(FolderError, match="E4502"):
        check_collection_name(name)


def test_collection_name_of_255_bytes() -> None:
    check_collection_name("ü" * 127 + "x")


def test_surrogates_are_not_utf8() -> None:
    assert is_utf8("ü")
    assert not is_utf8("\udc80")


def test_numbers() -> None:
    assert [is_number(value) for value in (1, 1.5, True, "1", float("nan"))] == [
        True,
        True,
        False,
        False,
        False,
    ]

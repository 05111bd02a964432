"""Keys under which the index finds a filter."""

from __future__ import annotations

import pytest

from vedette.filters.cel_parser import parse_cel
from vedette.subscriptions.required_keys import MAX_ALTERNATIVES, key_alternatives
from vedette.subscriptions.shape import extract_constants


def keys(source: str) -> list[tuple[list[str], str | None]]:
    """Return the equality fields and the range field of each alternative."""
    shape, _ = extract_constants(parse_cel(source))
    return [
        (
            [".".join(equality.path) for equality in alternative.equalities],
            ".".join(alternative.range.path) if alternative.range is not None else None,
        )
        for alternative in key_alternatives(shape)
    ]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("doc.a == 1 && doc.b > 2 || doc.a in [3, 4]", [(["doc.a"], "doc.b"), (["doc.a"], None)]),
        ("doc.b == 1 && doc.a == 2", [(["doc.a", "doc.b"], None)]),
        ("doc.active", [(["doc.active"], None)]),
        ("id == 'k'", [(["id"], None)]),
        ("doc.a != 1", [([], None)]),
        ("doc.b > 2 && doc.a > 1", [([], "doc.a")]),
        ("doc.b in [1] && doc.a in [2]", [(["doc.a"], None)]),
        ("doc.a in [1] && doc.a == 2", [(["doc.a"], None)]),
    ],
)
def test_keys_of_a_filter(source: str, expected: list[tuple[list[str], str | None]]):
    assert keys(source) == expected


def test_too_many_alternatives_leave_an_empty_key():
    assert keys(" || ".join(f"doc.f{number} == 1" for number in range(MAX_ALTERNATIVES + 1))) == [([], None)]


def test_order_of_conditions_does_not_change_the_keys():
    assert keys("doc.a == 1 && doc.b == 2 && doc.c > 3") == keys("doc.c > 3 && doc.b == 2 && doc.a == 1")

"""Splitting filters into shape and constants."""

from __future__ import annotations

from vedette.filters.cel_parser import parse_cel
from vedette.language.syntax.expressions import Attribute, Variable
from vedette.subscriptions.shape import MAX_LIST_KEYS, ListSlot, as_path, bind, extract_constants


def test_constants_are_replaced_and_restored():
    expression = parse_cel("doc.status == 'paid' && doc.total > 100 && doc.tag in ['a', 'b']")
    shape, constants = extract_constants(expression)
    assert constants == ("paid", 100, ["a", "b"])
    assert shape.constants == 3
    assert bind(shape, constants) == expression


def test_long_lists_have_another_shape():
    short, long = (
        extract_constants(parse_cel(f"doc.a in {list(range(count))}"))[0]
        for count in (MAX_LIST_KEYS, MAX_LIST_KEYS + 1)
    )
    assert short.fingerprint != long.fingerprint
    assert isinstance(long.tree.right, ListSlot)
    assert long.tree.right.is_too_long_for_keys


def test_filters_on_the_change_are_marked():
    assert extract_constants(parse_cel("op == 'delete'"))[0].depends_on_change
    assert not extract_constants(parse_cel("doc.op == 'delete'"))[0].depends_on_change


def test_path_of_a_node():
    city = Attribute(Attribute(Variable("doc"), "address"), "city")
    assert as_path(city) == ("doc", "address", "city")
    assert as_path(Variable("id")) == ("id",)
    assert as_path(Variable("doc")) is None

"""The canonical text of expressions is part of stored and signed formats: these bytes must not change unnoticed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from vedette.filters.cel_parser import parse_cel
from vedette.language.syntax.canonical import canonical_text
from vedette.language.syntax.expressions import ListLiteral, Literal, Parameter, Variable

RICH = (
    "doc.status in ['paid', 'sent'] && !(doc.total >= 100.5 || doc.lines[0].sku == \"a\\\"b\")"
    " && (doc.late ? size(doc.tags) > 2 : before.total != -7) && doc.note != null && doc.open == true"
)
GOLDEN = (
    '["binary","AND",["binary","AND",["binary","AND",["binary","IN",["attribute",["variable","d'
    'oc"],"status"],["list",["literal","string","paid"],["literal","string","sent"]]],["unary",'
    '"NOT",["binary","OR",["binary",">=",["attribute",["variable","doc"],"total"],["literal","f'
    'loat","100.5"]],["binary","==",["attribute",["index",["attribute",["variable","doc"],"line'
    's"],["literal","int","0"]],"sku"],["literal","string","a\\"b"]]]]],["conditional",["attribu'
    'te",["variable","doc"],"late"],["binary",">",["call","size",["attribute",["variable","doc"'
    '],"tags"]],["literal","int","2"]],["binary","!=",["attribute",["variable","before"],"total'
    '"],["literal","int","-7"]]]],["binary","AND",["binary","!=",["attribute",["variable","doc"'
    '],"note"],["literal","null"]],["binary","==",["attribute",["variable","doc"],"open"],["lit'
    'eral","bool",true]]]]'
)


def test_golden_text_of_a_filter_with_every_node() -> None:
    assert canonical_text(parse_cel(RICH)) == GOLDEN


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, '["value","null"]'),
        (True, '["value","bool",true]'),
        (1, '["value","int","1"]'),
        (1.0, '["value","float","1.0"]'),
        ("ä", '["value","string","ä"]'),
        (
            datetime(2024, 1, 2, 3, 4, 5, 6000, UTC),
            '["value","timestamp","2024-01-02T03:04:05.006000+00:00"]',
        ),
        (timedelta(seconds=1), '["value","duration","1000000"]'),
        ((1, ["a"]), '["sequence",["value","int","1"],["sequence",["value","string","a"]]]'),
        ({"b": 1, "a": None}, '["map",["a",["value","null"]],["b",["value","int","1"]]]'),
        (Parameter("p", optional=True), '["parameter","p",true]'),
        (ListLiteral((Literal(1),)), '["list",["literal","int","1"]]'),
    ],
)
def test_golden_text_of_values(value: object, text: str) -> None:
    assert canonical_text(value) == text


def test_values_of_different_kinds_have_different_texts() -> None:
    texts = [canonical_text(Literal(value)) for value in (1, 1.0, True, "1", None)]
    assert len(set(texts)) == len(texts)


def test_an_unknown_node_class_is_rejected() -> None:
    with pytest.raises(TypeError, match="object has no canonical form"):
        canonical_text((Variable("doc"), object()))

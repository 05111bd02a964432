from __future__ import annotations

from typing import Any

import pytest

from tests.unit.filters.filter_cases import load
from vedette.errors import FilterError
from vedette.filters.cel_parser import parse_cel
from vedette.filters.collection_query import CollectionQuery, parse_query
from vedette.filters.filter_list import FilterCondition, parse_filters

CASES = load("queries")


@pytest.mark.parametrize("case", CASES["accepted"])
def test_accepted(case: dict[str, Any]) -> None:
    query = parse_query(case["query"])
    assert query.collection == case["query"]["collection"]
    assert [[order.field, order.descending] for order in query.order_by] == case["order"]
    assert (query.limit, query.start_after, query.show_deleted) == (
        case["limit"],
        case["cursor"],
        case["deleted"],
    )


@pytest.mark.parametrize(("query", "text"), CASES["refused"])
def test_rejected(query: Any, text: str) -> None:
    with pytest.raises(FilterError) as raised:
        parse_query(query)
    assert raised.value.code == "E1201"
    assert text in raised.value.text


def test_condition_from_filter_list_or_cel() -> None:
    conditions = [{"field": "a", "op": "==", "value": 1}]
    listed = parse_query({"collection": "c", "filters": conditions})
    assert listed.condition == parse_filters(conditions)
    assert listed.filters == (FilterCondition(field="a", op="==", value=1),)
    written = parse_query({"collection": "c", "filter": "doc.a == 1"})
    assert written == CollectionQuery(collection="c", condition=parse_cel("doc.a == 1"), filter="doc.a == 1")

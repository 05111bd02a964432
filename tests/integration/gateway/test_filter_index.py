"""The filter index: a change evaluates only filters that it can affect, and never misses one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties.test_subscription_index import DOCUMENTS, EXPRESSIONS
from tests.support.gateway_wire import Wire
from vedette.errors import FilterError
from vedette.filters.cel_parser import parse_cel
from vedette.filters.document_filter import DocumentFilter, compile_filter
from vedette.filters.inputs import FilterInput
from vedette.gateway.streams.filter_index import FilterIndex
from vedette.gateway.streams.filter_stream import FilterStream


def compiled(text: str) -> DocumentFilter | None:
    try:
        return compile_filter(parse_cel(text))
    except FilterError:
        return None


FILTERS = EXPRESSIONS.map(compiled).filter(lambda each: each is not None)
IMAGES = DOCUMENTS.map(lambda document: {**document, "id": "k1"}) | st.none()


def is_true(condition: DocumentFilter, document: Any, op: str, before: Any) -> bool:
    return document is not None and condition.matches(
        FilterInput(doc=document, id="k1", collection="T", op=op, before=before)
    )


@given(st.lists(FILTERS, max_size=8), st.lists(st.tuples(IMAGES, IMAGES), max_size=4), st.data())
@settings(max_examples=150)
def test_the_index_never_misses_a_filter(filters: list[Any], changes: list[Any], data: Any):
    index: FilterIndex[int] = FilterIndex()
    for number, condition in enumerate(filters):
        index.add(number, condition.expression)
    gone = data.draw(st.sets(st.integers(0, max(0, len(filters) - 1))))
    for number in gone:
        index.remove(number)
    for before, after in changes:
        op = "create" if before is None else "delete" if after is None else "update"
        found = index.candidates((before, after))
        assert not found.keys() & gone
        for number, condition in enumerate(filters):
            if is_true(condition, before, op, None) or is_true(condition, after, op, before):
                assert number in found or number in gone, condition.expression
    for number in range(len(filters)):
        index.remove(number)
    assert not index._buckets, "nothing stays of what has gone"


KINDS = [
    ("doc.n == {}", 1),
    ("doc.n == {} && doc.s == 'x'", 1),
    ("doc.s == 'x' && doc.n > {} && doc.n >= 990", 10),
    ("doc.n in [{}, {}]", 1),
    ("id == 'k{}'", 1),
]


@pytest.mark.parametrize(("text", "limit"), KINDS)
def test_the_cost_of_a_change_depends_on_candidates_not_on_filters(text: str, limit: int):
    index: FilterIndex[int] = FilterIndex()
    for number in range(1_000):
        condition = compiled(text.replace("{}", str(number)))
        assert condition is not None
        index.add(number, condition.expression)
    document = {"id": "k17", "n": 9 if limit == 10 else 17, "s": "x"}
    assert len(index.candidates((document,))) == limit


def test_a_change_evaluates_only_candidate_filters(wire: Wire, monkeypatch: pytest.MonkeyPatch):
    asked: list[FilterStream] = []
    judge = FilterStream.delta_for

    def counted(stream: FilterStream, *change: Any) -> Any:
        asked.append(stream)
        return judge(stream, *change)

    monkeypatch.setattr(FilterStream, "delta_for", counted)
    writer = wire.client()
    writer.define("node Task { n: Int = 0, state: String }")
    reader = wire.client()
    for n in range(300):
        reader.send("subscribe", {"collection": "Task", "filter": f"doc.n == {n}"}, id=f"f{n}")
    filters = [{"field": "n", "op": "==", "value": 7}, {"field": "state", "op": "==", "value": "open"}]
    reader.send("subscribe", {"query": {"collection": "Task", "filters": filters}}, id="list")
    reader.all()
    writer.execute('SPAWN t: Task { n = 7, state = "open" }')
    writer.execute('MATCH t: Task SET t { n = 8, state = "done" }')
    delivered = [(m["payload"]["subId"], m["payload"]["delta"]["reason"]) for m in reader.all()]
    assert sorted(delivered) == [
        ("f7", "enter"),
        ("f7", "leave"),
        ("f8", "enter"),
        ("list", "enter"),
        ("list", "leave"),
    ]
    assert len(asked) == 5, "no other filter was evaluated"
    reader.cut()
    wire.advance(1_000)
    assert not wire.broker.tenants["default"].node_type_watches

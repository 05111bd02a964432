"""A WATCH over one element matches the same documents in the pipeline as in the engine."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import vedette
from vedette.errors import SubscriptionError
from vedette.filters.document_filter import compile_filter
from vedette.filters.inputs import FilterInput
from vedette.subscriptions.collection_watch import parse_collection_watch

TYPE = "node N { a: Int?, b: Float?, c: String?, d: Bool?, e: Int? }"
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "a": st.none() | st.integers(-2, 2) | st.sampled_from([2**53, 2**53 + 1]),
    "b": st.none() | st.sampled_from([0.0, -0.0, 0.5, 1.0, 2.0, 2.0**53]),
    "c": st.none() | st.sampled_from(["", "x", "xy", "é"]),
    "d": st.none() | st.booleans(),
    "e": st.none() | st.integers(-2, 2),
}
DOCUMENTS = st.fixed_dictionaries(VALUES)
NUMBERS = st.sampled_from(["0", "1", "-1", "0.5", "2", "9007199254740993", "null"])
TEXTS = st.sampled_from(['""', '"x"', '"xy"', "null"])
NUMERIC = st.sampled_from(["n.a", "n.b", "n.e"])
EQUALITY = st.sampled_from(["=", "!="])
ORDER = st.sampled_from(["<", "<=", ">", ">="])
LEAVES = st.one_of(
    st.builds("{} {} {}".format, NUMERIC, EQUALITY | ORDER, NUMBERS.filter(lambda text: text != "null")),
    st.builds("{} {} {}".format, NUMERIC, EQUALITY, NUMBERS),
    st.builds("{1} {2} {0}".format, NUMERIC, NUMBERS.filter(lambda text: text != "null"), EQUALITY | ORDER),
    st.builds("{} {} {}".format, NUMERIC, EQUALITY | ORDER, NUMERIC),
    st.builds("n.c {} {}".format, EQUALITY, TEXTS),
    st.builds("n.c {} {}".format, ORDER, TEXTS.filter(lambda text: text != "null")),
    st.builds("n.c {} {}".format, st.sampled_from(["CONTAINS", "STARTS WITH", "ENDS WITH"]), st.just('"x"')),
    st.builds("n.d = {}".format, st.sampled_from(["true", "false", "null"])),
    st.just("n.d"),
    st.builds("{} IS {}NULL".format, st.sampled_from(["n.a", "n.c", "n.d"]), st.sampled_from(["", "NOT "])),
    st.builds("{} IN [{}, {}]".format, NUMERIC, NUMBERS, NUMBERS),
)
CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: (
        st.builds("({} AND {})".format, inner, inner)
        | st.builds("({} OR {})".format, inner, inner)
        | st.builds("NOT ({})".format, inner)
    ),
    max_leaves=5,
)


@settings(max_examples=150)
@given(CONDITIONS, st.lists(DOCUMENTS, min_size=1, max_size=6))
@example("NOT (n.a < 1)", [{"a": None, "b": None, "c": None, "d": None, "e": None}])
@example("n.a = n.e", [{"a": None, "b": None, "c": None, "d": None, "e": None}])
@example('NOT (n.c CONTAINS "x")', [{"a": 1, "b": None, "c": None, "d": None, "e": None}])
def test_engine_and_pipeline_match_the_same_documents(condition: str, documents: list[dict[str, Any]]):
    with vedette.open(":memory:") as db:
        db.define(TYPE)
        with db.session() as s:
            ids = []
            for document in documents:
                given_ = {name: value for name, value in document.items() if value is not None}
                fields = ", ".join(f"{name} = ${name}" for name in given_)
                s.execute(f"SPAWN n: N {{ {fields} }}", given_)
                ids.append(s.bindings["n"])
            try:
                rows = s.execute(f"MATCH n: N WHERE {condition} RETURN n.id").rows
            except vedette.VedetteError:
                return  # The types cannot be compared: the engine rejects the text.
            expected = {id for (id,) in rows}
    compiled = compile_filter(parse_collection_watch(f"WATCH n: N WHERE {condition} RETURN n").condition)
    found = {
        id
        for id, document in zip(ids, documents, strict=True)
        if compiled.matches(FilterInput(doc=document, id=id))
        # A missing attribute is null, too.
    }
    sparse = {
        id
        for id, document in zip(ids, documents, strict=True)
        if compiled.matches(
            FilterInput(doc={name: value for name, value in document.items() if value is not None}, id=id)
        )
    }
    assert found == sparse == expected


@pytest.mark.parametrize(
    "text",
    [
        "WATCH a: c, b: c RETURN a",
        "WATCH a: c WHERE EXISTS(b: c WHERE b.x = a.x) RETURN a",
        "WATCH a: c RETURN COUNT(*)",
        "WATCH a: c RETURN DISTINCT a.x",
        "WATCH a: c [window: tumbling(1s)] RETURN COLLECT(a.x)",
        "WATCH a: c [window: tumbling(1s)] RETURN COLLECT(a.x)[limit: none]",
        "WATCH a: c WHERE a.x + 1 > 2 RETURN a",
        "WATCH a: c [mode: consume] RETURN a",
        "WATCH a: c WHERE a.x = $missing RETURN a",
        "MATCH a: c RETURN a",
    ],
)
def test_engine_only_conditions_are_rejected(text: str):
    with pytest.raises(SubscriptionError) as caught:
        parse_collection_watch(text)
    assert caught.value.code == "E6204"


def test_rows_and_parameters():
    watch = parse_collection_watch(
        "WATCH o: shop::orders WHERE o.total > $least RETURN o.id, o.who.name AS who, o", {"least": 5}
    )
    assert watch.collection == "shop::orders"
    document = {"total": 7, "who": {"name": "x"}}
    assert watch.row("k", document) == {
        "o.id": "k",
        "who": "x",
        "o": {"id": "k", "_type": "shop::orders", "total": 7, "who": {"name": "x"}},
    }
    assert watch.row("k", {"who": 5})["who"] is None
    compiled = compile_filter(watch.condition)
    assert [compiled.matches(FilterInput(doc={"total": n})) for n in (5, 6)] == [False, True]

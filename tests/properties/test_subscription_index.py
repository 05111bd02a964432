"""For every filter and every change, the index finds exactly the subscriptions that a full scan finds.

Three implementations are compared: the index, column code over all pairs, and compiled expressions one by one.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from vedette.errors import FilterError
from vedette.filters.document_filter import compile_filter
from vedette.filters.inputs import FilterInput
from vedette.subscriptions.index.change_batch import DocumentChange, ImageBatch
from vedette.subscriptions.index.matcher import ENTER, LEAVE, match_by_scan, match_segments
from vedette.subscriptions.index.segment import Segment
from vedette.subscriptions.index.segment_writer import SegmentEntry, write_segment
from vedette.subscriptions.shape import bind, extract_constants
from vedette.subscriptions.spec import SubscriptionSpec, filter_expression, split_constants

NONE = np.empty(0, np.int64)
NAMES = st.sampled_from(["a", "b", "c"])
NUMBERS = st.sampled_from(
    [0, 1, -1, 2, 1.0, 0.5, -0.0, 2**53, 2**53 + 1, 2.0**53, -(2**63), 2**63 - 1, 1e300]
)
TEXTS = st.sampled_from(
    ["", "x", "y", "xy", "é", "1", "a longer text than eight bytes", "x" * 130, "x" * 129 + "y"]
)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS | st.integers(-5, 5)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=4,
)
DOCUMENTS = st.dictionaries(NAMES, VALUES, max_size=3)

PATHS = st.sampled_from(
    ["doc.a", "doc.b", "doc.c", "doc.a.b", "doc.b.a", "id", "op", "collection", "before.a"]
)
LIKELY_PATHS = st.sampled_from(["doc.a", "doc.b", "doc.a", "doc.b", "doc.c", "doc.a.b", "id"])
LITERALS = SCALARS.map(lambda value: literal(value))


def literal(value: Any) -> str:
    if isinstance(value, str):
        return msgspec.json.encode(value).decode()
    return (
        {None: "null", True: "true", False: "false"}[value]
        if value is None or isinstance(value, bool)
        else repr(value)
    )


COMPARISONS = st.builds(
    "{} {} {}".format,
    LIKELY_PATHS | PATHS,
    st.sampled_from(["==", "==", "!=", "<", "<=", ">", ">="]),
    LITERALS,
)
LEAVES = st.one_of(
    COMPARISONS,
    COMPARISONS,
    st.builds("{1} {2} {0}".format, PATHS, LITERALS, st.sampled_from(["==", "<", ">="])),
    st.builds(
        lambda path, items: f"{path} in [{', '.join(items)}]", LIKELY_PATHS, st.lists(LITERALS, max_size=20)
    ),
    st.builds("has({})".format, st.sampled_from(["doc.a", "doc.b", "doc.a.b"])),
    PATHS,
    LITERALS,
    st.builds("{} + 1 > {}".format, LIKELY_PATHS, NUMBERS.map(literal)),
    st.builds("doc.a.startsWith({})".format, TEXTS.map(literal)),
    st.builds("{} in doc.b".format, LITERALS),
    st.builds("doc.a {} doc.b".format, st.sampled_from(["==", "<"])),
)
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds("({} && {})".format, inner, inner),
        st.builds("({} && {})".format, inner, inner),
        st.builds("({} || {})".format, inner, inner),
        st.builds("!({})".format, inner),
        st.builds("({} ? {} : {})".format, inner, inner, inner),
    ),
    max_leaves=6,
)
FILTERS = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {
                "field": st.sampled_from(["a", "b", "a.b", "_id"]),
                "op": st.sampled_from(["==", "!=", "contains"]),
            }
            | {"value": SCALARS}
        ),
        st.fixed_dictionaries(
            {"field": NAMES, "op": st.sampled_from(["<", "<=", ">", ">="]), "value": NUMBERS | TEXTS}
        ),
        st.fixed_dictionaries({"field": NAMES, "op": st.just("in"), "value": st.lists(SCALARS, max_size=18)}),
    ),
    max_size=3,
).map(lambda filters: SubscriptionSpec(kind="filters", source=msgspec.json.encode(filters).decode()))
WATCHES = st.builds(
    "WATCH o: c WHERE {} RETURN o".format,
    st.recursive(
        st.one_of(
            st.builds(
                "o.{} {} {}".format,
                NAMES,
                st.sampled_from(["=", "!=", "<", ">="]),
                st.sampled_from(["1", "0.5", "2", '"x"', "null", "true"]),
            ),
            st.builds("o.{} IS NULL".format, NAMES),
            st.builds("o.{} IN [1, null]".format, NAMES),
        ),
        lambda inner: (
            st.builds("({} AND {})".format, inner, inner)
            | st.builds("({} OR {})".format, inner, inner)
            | st.builds("NOT ({})".format, inner)
        ),
        max_leaves=4,
    ),
).map(lambda source: SubscriptionSpec(kind="watch", source=source))
FORMS = st.one_of(
    EXPRESSIONS.map(lambda source: SubscriptionSpec(kind="cel", source=source)), FILTERS, WATCHES
)
CHANGES = st.tuples(st.sampled_from(["k", "x", "1"]), st.none() | DOCUMENTS, st.none() | DOCUMENTS).filter(
    lambda change: change[1] is not None or change[2] is not None
)


def by_definition(spec: SubscriptionSpec, change: DocumentChange) -> int:
    """Return the expected result by the definition, with compiled expressions of the language."""
    condition = compile_filter(filter_expression(spec))

    def matches(document: Any) -> bool:
        return condition.matches(
            FilterInput(doc=document, id=change.key, collection="c", op=change.op, before=change.before)
        )

    if extract_constants(filter_expression(spec))[0].depends_on_change:
        subject = change.after if change.after is not None else change.before
        own = (LEAVE if change.before is not None else 0) | (ENTER if change.after is not None else 0)
        return own if matches(subject) else 0
    was = change.before is not None and matches(change.before)
    now = change.after is not None and matches(change.after)
    return (LEAVE if was else 0) | (ENTER if now else 0)


def entry(number: int, spec: SubscriptionSpec) -> SegmentEntry:
    _, constants = split_constants(spec)
    return SegmentEntry(number, number % 3, number % 2, 0, msgspec.json.encode(spec), constants)


def changes_of(drawn: list[Any]) -> list[DocumentChange]:
    ops = {(True, False): "create", (True, True): "update", (False, True): "delete"}
    return [
        DocumentChange(1 + place // 3, key, ops[after is not None, before is not None], before, after)
        for place, (key, before, after) in enumerate(drawn)
    ]


@given(st.lists(FORMS, min_size=1, max_size=12), st.lists(CHANGES, min_size=1, max_size=6))
@example([SubscriptionSpec(kind="cel", source="doc.a == 9007199254740993")], [("k", None, {"a": 2.0**53})])
@example([SubscriptionSpec(kind="cel", source="doc.a > 9007199254740992.0")], [("k", None, {"a": 2**53 + 1})])
@example([SubscriptionSpec(kind="cel", source="doc.a in [0.0]")], [("k", {"a": -0.0}, {"a": False})])
@example([SubscriptionSpec(kind="cel", source="doc.a < 'y'")], [("k", {"a": "x"}, {"a": 1})])
@example([SubscriptionSpec(kind="cel", source="op == 'delete'")], [("k", {"a": 1}, None)])
@example([SubscriptionSpec(kind="cel", source="op == 'update' && doc.a == 1")], [("k", {"a": 1}, {"a": 2})])
def test_index_scan_and_definition_agree(specs: list[SubscriptionSpec], drawn: list[Any]):
    usable = []
    for spec in specs:
        try:
            compile_filter(filter_expression(spec))
            usable.append(spec)
        except FilterError:
            continue
    changes = changes_of(drawn)
    entries = [entry(number, spec) for number, spec in enumerate(usable)]
    with tempfile.TemporaryDirectory() as folder:
        half = len(entries) // 2
        segments = []
        for place, part in enumerate((entries[:half], entries[half:])):
            path = Path(folder) / f"{place}.seg"
            write_segment(path, part)
            segments.append(Segment.open(path))
        images = ImageBatch("t", "c", changes)
        found = sorted(match_segments(segments, NONE, images))
        assert found == sorted(match_by_scan(segments, NONE, images))
        expected = [
            (place, number, by_definition(spec, change))
            for place, change in enumerate(changes)
            for number, spec in enumerate(usable)
            if change.offset > number % 2 and by_definition(spec, change)
        ]
        assert found == expected
        ended = np.array([number for number in range(len(usable)) if number % 3 == 0], np.int64)
        assert sorted(match_segments(segments, ended, images)) == [m for m in found if m.subscription % 3]


@given(FORMS)
def test_shape_and_constants_reproduce_the_filter(spec: SubscriptionSpec):
    try:
        expression = filter_expression(spec)
    except FilterError:
        return
    shape, constants = extract_constants(expression)
    assert bind(shape, constants) == expression

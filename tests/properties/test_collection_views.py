"""An actor receives exactly the events of the documents as policies show them to the actor.

The index with its column code, a scan, and the gateway are compared with the reference model `models/view.py`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests.properties.models.view import RULES, seen, truths
from tests.properties.test_subscription_index import (
    CHANGES,
    DOCUMENTS,
    FILTERS,
    LEAVES,
    NONE,
    WATCHES,
    changes_of,
    entry,
)
from vedette.errors import FilterError, SubscriptionError
from vedette.filters.document_filter import compile_filter
from vedette.filters.inputs import FilterInput
from vedette.policy.collection_policies import ViewRule
from vedette.subscriptions.index.change_batch import DocumentChange, ImageBatch
from vedette.subscriptions.index.matcher import (
    ENTER,
    LEAVE,
    UPDATE,
    match_by_scan,
    match_segments,
    redact_by_mask,
)
from vedette.subscriptions.index.segment import Segment
from vedette.subscriptions.index.segment_writer import write_segment
from vedette.subscriptions.policy_view import TRUSTED_LIMITS
from vedette.subscriptions.spec import (
    SubscriptionSpec,
    filter_expression,
    shape_of_spec,
    view_of,
    watch_of_spec,
)
from vedette.watch.delta import values_equal

Rules = tuple[ViewRule, ...]

STILL = LEAVES.filter(lambda text: "op" not in text.split() and "before" not in text)
EXPRESSIONS = st.recursive(
    STILL,
    lambda inner: st.one_of(
        st.builds("({} && {})".format, inner, inner),
        st.builds("({} || {})".format, inner, inner),
        st.builds("!({})".format, inner),
        st.builds("({} ? {} : {})".format, inner, inner, inner),
        st.builds("(({}) == ({}))".format, inner, inner),
    ),
    max_leaves=4,
)
COLUMNS = st.sampled_from(["o", "o.a", "o.b, o.c", "o.id"])
FORMS = st.one_of(
    EXPRESSIONS.map(lambda source: SubscriptionSpec(kind="cel", source=source)),
    FILTERS,
    st.builds(
        lambda spec, columns: msgspec.structs.replace(
            spec, source=spec.source.replace("RETURN o", f"RETURN {columns}")
        ),
        WATCHES,
        COLUMNS,
    ),
)


def usable(specs: list[tuple[SubscriptionSpec, Rules]]) -> list[SubscriptionSpec]:
    """Return the policies that the language accepts, with their rules."""
    found = []
    for spec, rules in specs:
        through = msgspec.structs.replace(spec, view=rules)
        try:
            compile_filter(filter_expression(spec))
            compile_filter(filter_expression(through), limits=TRUSTED_LIMITS)
            found.append(through)
        except (FilterError, SubscriptionError):
            continue
    return found


def as_read(drawn: list[Any]) -> list[DocumentChange]:
    """Return documents as source readers write them, with the key as `id`."""
    whole = [
        (key, *({"id": key, **image} if image is not None else None for image in images))
        for key, *images in drawn
    ]
    return changes_of(whole)


def visible_document(spec: SubscriptionSpec, key: str, document: dict[str, Any] | None) -> Any:
    """Return the document as the subscriber sees it, or None if it is hidden or does not match."""
    plain = msgspec.structs.replace(spec, view=None)
    condition = compile_filter(filter_expression(plain))
    if document is None or not condition.matches(FilterInput(doc=document, id=key, collection="c")):
        return None
    watch = watch_of_spec(plain)
    return watch.row(key, document) if watch is not None else dict(document)


def by_definition(spec: SubscriptionSpec, change: DocumentChange) -> tuple[int, Any, Any]:
    """Return the kind of change for a subscriber, and the document before and after as the subscriber sees it."""
    assert spec.view is not None
    before, after = (
        visible_document(spec, change.key, seen(spec.view, change.key, image)) for image in change[3:]
    )
    reason = (LEAVE if before is not None else 0) | (ENTER if after is not None else 0)
    hiding = bool(shape_of_spec(msgspec.json.encode(spec)).attribute_masks)
    if reason == UPDATE and hiding and values_equal(before, after):
        return 0, None, None
    return reason, before, after


def by_index(
    specs: list[SubscriptionSpec], changes: list[DocumentChange]
) -> list[tuple[int, int, int, Any, Any]]:
    """Return the same from the index: change, subscription, reason, and both visible images."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "all.seg"
        write_segment(path, [entry(number, spec)._replace(boundary=0) for number, spec in enumerate(specs)])
        segment = Segment.open(path)
        images = ImageBatch("t", "c", changes)
        found = match_segments([segment], NONE, images)
        every = match_by_scan([segment], NONE, images)
        assert sorted(found) == sorted(every)
        rows: list[tuple[int, int, int, Any, Any]] = []
        for row, match in enumerate(found):
            change, spec = changes[match.change], specs[match.subscription]
            shape, watch = shape_of_spec(found.specs[int(found.shape[row])]), watch_of_spec(spec)
            sides: list[Any] = []
            for image, bits, bit in (
                (change.before, found.hidden_before[row], LEAVE),
                (change.after, found.hidden_after[row], ENTER),
            ):
                if not match.transition & bit or image is None:
                    sides.append(None)
                    continue
                document = dict(redact_by_mask(shape, image, int(bits)))
                sides.append(watch.row(change.key, document) if watch is not None else document)
            rows.append((*match, sides[0], sides[1]))
        return sorted(rows, key=lambda each: each[:2])


def by_gateway(spec: SubscriptionSpec, change: DocumentChange) -> tuple[int, Any, Any]:
    """Return the gateway's own result, used for snapshots and for unfiltered changes."""
    view, watch = view_of(spec), watch_of_spec(spec)
    assert view is not None
    condition = compile_filter(filter_expression(spec), limits=TRUSTED_LIMITS)
    sides: list[Any] = []
    for image in change[3:]:
        if image is None or not condition.matches(FilterInput(doc=image, id=change.key, collection="c")):
            sides.append(None)
            continue
        document = dict(view.redact("c", change.key, image))
        sides.append(watch.row(change.key, document) if watch is not None else document)
    reason = (LEAVE if sides[0] is not None else 0) | (ENTER if sides[1] is not None else 0)
    return reason, sides[0], sides[1]


OWN = ViewRule(allow=True, attribute=None, variable="o", condition="o.a = 1")
DENY = ViewRule(allow=False, attribute=None, variable="o", condition="o.b > 1")
HIDE = ViewRule(allow=False, attribute="b", variable="o", condition="o.c = 1")
NAMED = ViewRule(allow=False, attribute=None, variable="o", condition='o.id = "k"')
ALL = ViewRule(allow=True, attribute=None, variable="o", condition="true")


@settings(max_examples=40)
@given(st.lists(st.tuples(FORMS, RULES), min_size=1, max_size=6), st.lists(CHANGES, min_size=1, max_size=5))
@example(
    [(SubscriptionSpec(kind="cel", source="!(doc.b == 1)"), (ALL, HIDE))], [("k", {"b": 2, "c": 1}, {"b": 2})]
)
@example(
    [(SubscriptionSpec(kind="cel", source="doc.b == 1"), (ALL, HIDE))], [("k", {"b": 1, "c": 1}, {"b": 1})]
)
@example([(SubscriptionSpec(kind="cel", source="true"), (ALL, DENY))], [("k", {"b": "x"}, {"b": None})])
@example([(SubscriptionSpec(kind="cel", source="true"), (ALL, NAMED))], [("k", None, {})])
@example(
    [(SubscriptionSpec(kind="cel", source="true"), (ALL, HIDE))], [("k", {"b": 1, "c": 1}, {"b": 2, "c": 1})]
)
@example(
    [(SubscriptionSpec(kind="cel", source="((doc.b == 1 && false) == false)"), (ALL, HIDE))],
    [("k", None, {"c": 1})],
)
@example(
    [(SubscriptionSpec(kind="watch", source="WATCH o: c WHERE o.b IS NULL RETURN o.b"), (OWN, HIDE))],
    [("k", {"a": 1, "b": 1}, {"a": 1, "b": 1, "c": 1})],
)
def test_index_equals_fresh_evaluation_with_policies(
    drawn: list[tuple[SubscriptionSpec, Rules]], changed: list[Any]
):
    specs, changes = usable(drawn), as_read(changed)
    expected = [
        (place, number, *outcome)
        for place, change in enumerate(changes)
        for number, spec in enumerate(specs)
        if (outcome := by_definition(spec, change))[0]
    ]
    assert by_index(specs, changes) == expected
    for place, change in enumerate(changes):
        for number, spec in enumerate(specs):
            found = by_gateway(spec, change)
            if (place, number, *found) in expected:
                continue
            assert found[0] in (0, UPDATE)
            assert by_definition(spec, change)[0] == 0
            assert values_equal(found[1], found[2]), "the gateway leaves out what shows nothing new"


@settings(max_examples=40)
@given(FORMS, RULES, CHANGES, st.data())
def test_hidden_values_do_not_affect_results(
    spec: SubscriptionSpec, rules: Rules, drawn: Any, data: st.DataObject
):
    """Replacing hidden values by other values does not change the events of the actor."""
    specs, (change,) = usable([(spec, rules)]), as_read([drawn])
    assume(specs)
    images = []
    for image in change[3:]:
        view = seen(rules, change.key, image)
        other = image
        if image is not None:
            kept = view or {}
            drawn_values = data.draw(DOCUMENTS)
            other = {**{n: v for n, v in drawn_values.items() if n not in kept}, **kept}
            if view is None:
                other = drawn_values
        assume(seen(rules, change.key, other) == view)
        images.append(other)
    twin = change._replace(before=images[0], after=images[1])
    assert by_index(specs, [change]) == by_index(specs, [twin])


@given(st.sampled_from(["o.a", "o.a < 1", "NOT (o.a < 1)", 'o.a STARTS WITH "x"']), DOCUMENTS)
def test_deny_condition_that_fails_hides_the_document(condition: str, document: dict[str, Any]):
    rules = (ALL, msgspec.structs.replace(DENY, condition=condition))
    spec = SubscriptionSpec(kind="cel", source="true", view=rules)
    visible = compile_filter(filter_expression(spec)).matches(FilterInput(doc=document, id="k"))
    assert visible is (True not in truths(condition, "k", document, {True, False}))


@pytest.mark.parametrize("source", ["op == 'delete'", "before.a == 1", "doc == {}", "size(doc) > 1"])
def test_filters_that_would_reveal_hidden_values_are_rejected(source: str):
    spec = SubscriptionSpec(kind="cel", source=source, view=(ALL, HIDE))
    with pytest.raises((SubscriptionError, FilterError)):
        filter_expression(spec)


def test_watches_of_many_actors_share_one_shape():
    """The actor is a constant of the shape: the index has the same size as without policies."""
    specs = [
        SubscriptionSpec(
            kind="watch",
            source="WATCH o: c WHERE o.n > 1 RETURN o",
            view=(
                msgspec.structs.replace(OWN, condition=f'o.owner = "{name}"'),
                msgspec.structs.replace(HIDE, condition=f'o.by != "{name}"'),
            ),
        )
        for name in ("ann", "bob")
    ]
    assert len({shape_of_spec(msgspec.json.encode(spec)).fingerprint for spec in specs}) == 1
    found = by_index(specs, [DocumentChange(1, "k", "create", None, {"n": 2, "owner": "bob", "b": 5})])
    assert [(number, reason) for _, number, reason, *_ in found] == [(1, ENTER)]
    assert found[0][4]["o"] == {"id": "k", "_type": "c", "n": 2, "owner": "bob"}

"""The stored form of a subscription."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from vedette.errors import SubscriptionError
from vedette.policy.collection_policies import ViewRule
from vedette.subscriptions.spec import (
    SubscriptionSpec,
    shape_of_spec,
    spec_from_query,
    split_constants,
    watch_of_spec,
)

SPEC = SubscriptionSpec(
    kind="watch",
    source="WATCH o: shop::orders WHERE o.total > $min RETURN o.total AS total",
    params={"min": 100},
    auth={"userId": "u1"},
    time=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    view=(
        ViewRule(allow=True, attribute=None, variable="o", condition='o.owner = "u1"'),
        ViewRule(allow=False, attribute="total", variable="o", condition="o.locked"),
    ),
    union_id="w1",
)
GOLDEN = (
    b'{"kind":"watch","source":"WATCH o: shop::orders WHERE o.total > $min RETURN o.total AS total",'
    b'"params":{"min":100},"auth":{"userId":"u1"},"time":"2026-01-02T03:04:05Z","view":[{"allow":true,'
    b'"attribute":null,"variable":"o","condition":"o.owner = \\"u1\\""},{"allow":false,"attribute":"total",'
    b'"variable":"o","condition":"o.locked"}],"union_id":"w1"}'
)
GOLDEN_FINGERPRINT = (
    '["sequence",["binary","AND",["binary","==",["attribute",["variable","doc"],"status"],["constant","0"]],'
    '["binary","IN",["attribute",["variable","doc"],"tag"],["constant_list","1",false]]],["value","null"],'
    '["value","string",""],["sequence"]]'
)


def test_spec_format_is_pinned():
    """A change of these bytes needs a new version of the registry, of the index and of `gateway.window`."""
    assert msgspec.json.encode(SPEC) == GOLDEN
    assert msgspec.json.decode(GOLDEN, type=SubscriptionSpec) == SPEC


def test_fingerprint_is_pinned():
    """A change of this text needs a new version of the registry and of the index."""
    spec = SubscriptionSpec(kind="cel", source="doc.status == 'paid' && doc.tag in ['a', 'b']")
    shape, constants = split_constants(spec)
    assert shape.fingerprint == GOLDEN_FINGERPRINT
    assert constants == ("paid", ["a", "b"])


def test_specs_that_differ_in_constants_share_a_shape():
    specs = [SubscriptionSpec(kind="cel", source=f"doc.a == {number}") for number in (1, 2)]
    assert len({shape_of_spec(msgspec.json.encode(spec)).fingerprint for spec in specs}) == 1
    assert [split_constants(spec)[1] for spec in specs] == [(1,), (2,)]


def test_query_becomes_a_spec():
    assert spec_from_query({"filter": "doc.a == 1"}).kind == "cel"
    spec = spec_from_query({"filters": [{"field": "a", "op": "==", "value": 1}]})
    assert (spec.kind, watch_of_spec(spec)) == ("filters", None)


def test_unsupported_watch_is_refused():
    with pytest.raises(SubscriptionError) as error:
        split_constants(SubscriptionSpec(kind="watch", source="WATCH a: x::A, b: x::B RETURN a"))
    assert error.value.code == "E6204"

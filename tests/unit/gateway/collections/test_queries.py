"""Subscriptions to external collections: which they are, and the saved form of their streams."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from vedette.gateway.collections.queries import (
    SavedCollectionStream,
    has_external_type,
    is_external,
    query_from_saved,
)
from vedette.language.parser import parse_script
from vedette.language.syntax.statements import Watch
from vedette.policy.collection_policies import ViewRule
from vedette.subscriptions.spec import SubscriptionSpec

SAVED = SavedCollectionStream(
    spec=SubscriptionSpec(
        kind="cel",
        source="doc.total > 9 && doc.owner == request.auth.userId",
        auth={"userId": "u1", "roles": [], "claims": {}},
        time=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    ),
    collections=("shop::orders",),
    view_rules={
        "shop::orders": (ViewRule(allow=True, attribute=None, variable="o", condition="o.open = true"),)
    },
    include_data=True,
    low_priority=False,
    after=17,
    positions={3: (1, 20)},
    epochs={3: 1, 4: 2},
)

GOLDEN = (
    b'{"collection":{"spec":{"kind":"cel","source":"doc.total > 9 && doc.owner == request.aut'
    b'h.userId","params":{},"auth":{"userId":"u1","roles":[],"claims":{}},"time":"2026-01-02T'
    b'03:04:05Z","view":null,"union_id":""},"collections":["shop::orders"],"view_rules":{"shop:'
    b':orders":[{"allow":true,"attribute":null,"variable":"o","condition":"o.open = true"}]},'
    b'"include_data":true,"low_priority":false,"published_offset":17,"partition_positions":{"'
    b'3":[1,20]},"partition_epochs":{"3":1,"4":2}}}'
)


def test_the_saved_form_is_pinned():
    """It is part of `gateway.window`. A change of these bytes needs a new version of that file."""
    data = msgspec.json.encode({"collection": SAVED})
    assert data == GOLDEN
    assert msgspec.json.decode(data, type=dict[str, SavedCollectionStream]) == {"collection": SAVED}


def test_a_saved_stream_asks_for_what_it_asked_before():
    request = query_from_saved(b"k" * 16, SAVED)
    assert (request.collections, request.include_data, request.snapshot) == (("shop::orders",), True, False)
    assert request.views is None


@pytest.mark.parametrize(
    ("text", "external"),
    [
        ("WATCH o: shop::orders RETURN o.total", True),
        ("WATCH t: Task RETURN t", False),
        ("WATCH t: Task | shop::orders RETURN t", True),
    ],
)
def test_a_type_with_a_prefix_is_external(text: str, external: bool):
    (statement,) = parse_script(text)
    assert isinstance(statement, Watch)
    assert has_external_type(statement) is external


def test_a_collection_with_a_prefix_is_external():
    assert is_external("shop::orders")
    assert not is_external("Task")

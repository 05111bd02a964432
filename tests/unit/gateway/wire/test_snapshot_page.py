"""Snapshot pages: order, limits and cursors."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import msgspec
import pytest

from vedette.errors import FilterError
from vedette.filters.collection_query import CollectionQuery, parse_query
from vedette.filters.limits import DEFAULT_FILTER_LIMITS
from vedette.gateway.wire import snapshot_page as module
from vedette.gateway.wire.snapshot_page import CURSOR_VERSION, snapshot_page

DOCUMENTS: list[dict[str, Any]] = [
    {"id": "a", "n": 2, "tag": "x"},
    {"id": "b", "n": 1.5, "tag": "é"},
    {"id": "c", "n": None, "tag": "x"},
    {"id": "d", "tag": "x"},
    {"id": "e", "n": "text"},
]


def query(**fields: object) -> CollectionQuery:
    return parse_query({"collection": "Task", "filters": [], **fields}, DEFAULT_FILTER_LIMITS)


def ids(page: dict[str, Any]) -> list[str]:
    return [document["id"] for document in page["documents"]]


def test_missing_values_sort_before_null_numbers_and_strings():
    assert ids(snapshot_page(query(orderBy=[{"field": "n", "direction": "asc"}]), DOCUMENTS)) == list("dcbae")
    assert ids(snapshot_page(query(orderBy=[{"field": "n", "direction": "desc"}]), DOCUMENTS)) == list(
        "eabcd"
    )


@pytest.mark.parametrize("direction", ["asc", "desc"])
def test_pages_follow_each_other_without_gap_or_repeat(direction: str):
    order = [{"field": "tag", "direction": direction}, {"field": "n", "direction": "asc"}]
    expected = ids(snapshot_page(query(orderBy=order), DOCUMENTS))
    found: list[str] = []
    cursor: str | None = None
    while True:
        start = {"startAfter": cursor} if cursor is not None else {}
        page = snapshot_page(query(orderBy=order, limit=2, **start), DOCUMENTS)
        found += ids(page)
        cursor = page.get("cursor")
        if cursor is None:
            break
    assert found == expected


def test_the_cursor_format_is_pinned():
    """Clients hold cursors between two requests. A change of the format needs a new CURSOR_VERSION."""
    order = [{"field": "tag", "direction": "desc"}, {"field": "n", "direction": "asc"}]
    page = snapshot_page(query(orderBy=order, limit=1), DOCUMENTS)
    assert CURSOR_VERSION == 1
    decoded = urlsafe_b64decode(page["cursor"] + "==")
    assert decoded == '{"terms":[[4,"é",true],[3,1.5,false],[4,"b",false]],"version":1}'.encode()


@pytest.mark.parametrize(
    "cursor",
    [
        b'{"terms":[[4,"a",false]],"version":0}',
        b'[[4,"a",false]]',
        b'{"version":1}',
        b"no JSON",
        b'{"terms":[[4,1,false]],"version":1}',
    ],
)
def test_another_text_is_not_a_cursor(cursor: bytes):
    text = urlsafe_b64encode(cursor).decode()
    with pytest.raises(FilterError, match="not a cursor of an earlier page; request the first page again"):
        snapshot_page(query(startAfter=text), DOCUMENTS)


def test_more_documents_than_a_page_may_have_are_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MAX_SNAPSHOT_DOCUMENTS", 4)
    with pytest.raises(FilterError) as failed:
        snapshot_page(query(), DOCUMENTS)
    assert failed.value.code == "E1202"
    assert msgspec.json.encode(snapshot_page(query(limit=5), DOCUMENTS))

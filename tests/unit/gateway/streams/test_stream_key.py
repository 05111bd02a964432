"""Stream keys: equal for subscriptions that may share a stream, and pinned, because resume tokens carry them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from vedette.filters.collection_query import CollectionQuery, parse_query
from vedette.filters.limits import DEFAULT_FILTER_LIMITS
from vedette.gateway.streams.stream_key import (
    KEY_VERSION,
    claims_hash,
    depends_on_claims,
    filter_key,
    is_shareable,
    stream_key,
    watch_key,
)
from vedette.language.parser import parse_script
from vedette.language.syntax import statements as ast

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
WATCH = 'WATCH t: Task WHERE t.n > 3 AND t.kind = "a" [initial: none] RETURN t.n'
PARAMS: dict[str, Any] = {"n": 3, "at": NOW, "span": timedelta(seconds=2), "names": ["a", "b"], "x": 1.5}
AUTH: dict[str, Any] = {"userId": "u1", "roles": ["admin"], "claims": {"level": 3}}


def query(text: str) -> CollectionQuery:
    return parse_query({"collection": "Task", "filter": text}, DEFAULT_FILTER_LIMITS)


def test_the_format_is_pinned():
    """A change of these values needs a new KEY_VERSION: tokens that clients hold no longer find their stream."""
    own = query('doc.owner == request.auth.userId && doc.at < request.time && doc.kind in ["a", "b"]')
    assert KEY_VERSION == "stream-key-1"
    assert {
        "watch": watch_key("shop", "u1", WATCH, PARAMS).hex(),
        "filter": filter_key("shop", "u1", own, AUTH, NOW, include_data=True).hex(),
        "collection": stream_key("collection", "shop", None, "filter", "normal", "shop::orders").hex(),
        "claims": claims_hash(AUTH).hex(),
    } == {
        "watch": "4822742b3b5de116b8c186e22e526697",
        "filter": "d20c27ec5aa44bc872dedd7797f62366",
        "collection": "9bbdafd1962ee317e3dd0454a994249c",
        "claims": "3144a349107437c16723664b526c2b97",
    }


def test_layout_does_not_change_a_watch_and_everything_else_does():
    key = watch_key("shop", "u1", WATCH, PARAMS)
    assert watch_key("shop", "u1", WATCH.replace(" AND ", "\n   AND  "), PARAMS) == key
    others = [
        watch_key("other", "u1", WATCH, PARAMS),
        watch_key("shop", "u2", WATCH, PARAMS),
        watch_key("shop", None, WATCH, PARAMS),
        watch_key("shop", "", WATCH, PARAMS),
        watch_key("shop", "u1", WATCH.replace("3", "4"), PARAMS),
        watch_key("shop", "u1", WATCH.replace('"a"', '"A"'), PARAMS),
        watch_key("shop", "u1", WATCH, {**PARAMS, "n": 3.0}),
        watch_key("shop", "u1", WATCH, {**PARAMS, "n": "3"}),
    ]
    assert len({key, *others}) == len(others) + 1


def test_a_filter_is_bound_to_what_it_reads_of_its_requester():
    plain, own = query("doc.n > 1"), query("doc.owner == request.auth.userId")
    other = {**AUTH, "userId": "u2"}

    def key(of: CollectionQuery, auth: dict[str, Any], *, data: bool = True) -> bytes:
        return filter_key("shop", None, of, auth, NOW, include_data=data)

    assert key(plain, AUTH) == key(plain, other)
    assert key(own, AUTH) != key(own, other)
    assert key(plain, AUTH) != key(plain, AUTH, data=False)
    assert (depends_on_claims(plain, NOW), depends_on_claims(own, NOW)) == (False, True)


def test_the_claims_hash_depends_on_values_and_not_on_the_order_of_keys():
    assert claims_hash(AUTH) == claims_hash(dict(reversed(AUTH.items())))
    assert claims_hash(AUTH) != claims_hash({**AUTH, "roles": []})
    assert claims_hash(None) != claims_hash({})


@pytest.mark.parametrize(
    ("text", "shareable"),
    [
        ("WATCH t: Task RETURN t", True),
        ("WATCH t: Task [initial: none, buffer: 5] RETURN t", True),
        ("WATCH t: Task [mode: consume] RETURN t", False),
        ("WATCH t: Task [delivery: reliable] RETURN t", False),
        ("WATCH t: Task WHERE t = #mine RETURN t", False),
    ],
)
def test_only_watches_that_mean_the_same_in_every_session_are_shared(text: str, shareable: bool):
    (statement,) = parse_script(text)
    assert isinstance(statement, ast.Watch)
    assert is_shareable(statement, text) is shareable

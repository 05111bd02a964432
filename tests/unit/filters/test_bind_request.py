"""`request.auth` and `request.time` become constants; everything else stays."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from vedette.filters import FilterInput, FilterOutcome, compile_filter, parse_cel
from vedette.filters.bind_request import bind_request
from vedette.filters.inputs import FilterRequest

REQUEST = FilterRequest(
    auth={"userId": "ada", "roles": ["admin", "editor"], "claims": {"team": "x"}},
    time=datetime(2026, 1, 31, tzinfo=UTC),
)


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("doc.owner == request.auth.userId", "doc.owner == 'ada'"),
        ("doc.role in request.auth.roles", "doc.role in ['admin', 'editor']"),
        ("doc.at < request.time", "doc.at < timestamp('2026-01-31T00:00:00Z')"),
        ("has(request.auth.claims.team) && doc.a", "true && doc.a"),
        ("has(request.auth.claims.other) || doc.a", "false || doc.a"),
        ("doc.a ? !doc.b : doc.c[0] == -doc.d", "doc.a ? !doc.b : doc.c[0] == -doc.d"),
    ],
)
def test_bound_filters(text: str, bound: str) -> None:
    assert bind_request(parse_cel(text), REQUEST) == parse_cel(bound)


def test_a_filter_without_request_is_the_same_object() -> None:
    tree = parse_cel("doc.total > 100 && has(doc.name)")
    assert bind_request(parse_cel("doc.total > 100"), REQUEST) == parse_cel("doc.total > 100")
    assert bind_request(tree, REQUEST) == tree


def test_a_missing_claim_is_an_error_at_evaluation() -> None:
    bound = compile_filter(bind_request(parse_cel("request.auth.claims.other == 'x'"), REQUEST))
    assert bound.outcome(FilterInput(doc={})) is FilterOutcome.FAILED


def test_without_a_token_auth_is_null() -> None:
    assert bind_request(parse_cel("request.auth == null"), FilterRequest()) == parse_cel("null == null")

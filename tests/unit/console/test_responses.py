"""Error responses and bearer tokens of the HTTP API."""

from __future__ import annotations

import json

import pytest
from starlette.requests import Request

from vedette.console.responses import bearer_token, error_response


def request(authorization: str | None) -> Request:
    headers = [] if authorization is None else [(b"authorization", authorization.encode())]
    return Request({"type": "http", "headers": headers})


@pytest.mark.parametrize(
    ("header", "token"),
    [(None, ""), ("Bearer abc", "abc"), ("bearer  abc ", "abc"), ("Basic abc", ""), ("Bearer", "")],
)
def test_the_token_is_that_of_the_bearer_scheme(header: str | None, token: str):
    assert bearer_token(request(header)) == token


@pytest.mark.parametrize(
    ("code", "status"), [("unauthorized", 401), ("busy", 503), ("E7001", 403), ("E1101", 400), ("E5002", 409)]
)
def test_an_error_has_the_status_of_its_code(code: str, status: int):
    response = error_response({"code": code, "message": "m"})
    assert response.status_code == status
    assert json.loads(bytes(response.body)) == {"error": {"code": code, "message": "m"}}

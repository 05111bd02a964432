"""Parts that all handlers of the HTTP API share: error responses and the bearer token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

__all__ = ["CONNECTION_LIMIT_REACHED", "bearer_token", "error_response"]

_STATUS: Mapping[str, int] = {
    "unauthorized": 401,
    "invalid_auth": 400,
    "forbidden": 403,
    "busy": 503,
    "too_slow": 408,
    "too_many_connections": 503,
    "internal": 500,
    "E7003": 401,
    "E7001": 403,
    "E8001": 403,
    "E3601": 404,
    "E5002": 409,
}
"""HTTP status by error code; 400 for all others."""
CONNECTION_LIMIT_REACHED = {
    "code": "too_many_connections",
    "message": "connection limit reached",
    "retryable": True,
}


def bearer_token(request: Request) -> str:
    """Return the token of the Authorization header; empty if there is none."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def error_response(payload: dict[str, Any]) -> Response:
    """Return `{"error": payload}` with the HTTP status of its code."""
    return JSONResponse({"error": payload}, _STATUS.get(str(payload.get("code")), 400))

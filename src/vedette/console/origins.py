"""Origin checks of the HTTP API: the server's own host and the configured origins are allowed, others get 403.

Browsers let a page read a response of another origin only if the response allows it (CORS); allowed origins get those
headers. A browser treats another port of the same host as another origin; this server does not. Starlette's CORS
middleware is not used, because it lets simple requests of other origins through.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from vedette.gateway.server.access import is_loopback, origin_allowed

__all__ = ["OriginMiddleware"]

_PREFLIGHT_HEADERS = {
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, Last-Event-ID",
    "Access-Control-Max-Age": "600",
}


class OriginMiddleware:
    """Rejects other origins and, without authentication, host names that are not loopback (DNS rebinding)."""

    def __init__(self, app: ASGIApp, *, allowed: tuple[str, ...], requires_auth: bool) -> None:
        self._app, self._allowed, self._requires_auth = app, allowed, requires_auth

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        origin = headers.get(b"origin", b"").decode("latin-1")
        named = self._requires_auth or is_loopback(host.rsplit(":", 1)[0] if not host.endswith("]") else host)
        if not named or not origin_allowed(origin, host, self._allowed, requires_auth=self._requires_auth):
            await PlainTextResponse("Origin not allowed\n", 403)(scope, receive, send)
        elif not origin:
            await self._app(scope, receive, send)
        elif scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
            await Response(status_code=204, headers=_PREFLIGHT_HEADERS)(
                scope, receive, _with_cors_headers(send, origin)
            )
        else:
            await self._app(scope, receive, _with_cors_headers(send, origin))


def _with_cors_headers(send: Send, origin: str) -> Send:
    """Add CORS headers to the response."""

    async def send_with_headers(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            answer = MutableHeaders(scope=message)
            answer["Access-Control-Allow-Origin"] = origin
            answer.add_vary_header("Origin")
        await send(message)

    return send_with_headers

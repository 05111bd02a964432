"""The HTTP API: routes, health checks and statements. Each request for data is one connection of the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from vedette.console.in_process import open_in_process
from vedette.console.metrics import MetricsSource, metrics_text
from vedette.console.origins import OriginMiddleware
from vedette.console.page import STATIC, ServerInfo, front_page, info_response
from vedette.console.responses import CONNECTION_LIMIT_REACHED, bearer_token, error_response
from vedette.console.sse import event_stream
from vedette.gateway.server.access import is_loopback
from vedette.gateway.server.auth import LoopbackAuthenticator
from vedette.gateway.server.router import ConnectionRouter

__all__ = ["make_app"]

BODY_SECONDS = 30.0


def make_app(
    router: ConnectionRouter,
    *,
    metrics_source: MetricsSource,
    ready: Callable[[], str | None],
    server_info: Callable[[], ServerInfo],
    allowed_origins: tuple[str, ...] = (),
) -> Starlette:
    """`ready` returns what the server still waits for, or None."""
    requires_auth = not isinstance(router.authenticator, LoopbackAuthenticator)

    async def about(_: Request) -> Response:
        return info_response(server_info(), requires_auth=requires_auth)

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readiness(_: Request) -> Response:
        missing = ready()
        status = {"status": "ready"} if missing is None else {"status": "not ready", "reason": missing}
        return JSONResponse(status, 200 if missing is None else 503)

    async def metrics(request: Request) -> Response:
        near = request.client is not None and is_loopback(request.client.host)
        # database names are shown only to local or unauthenticated readers
        text = metrics_text(metrics_source, names=near or not requires_auth)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    def statement(type: str) -> Callable[[Request], Any]:
        async def respond(request: Request) -> Response:
            return await _statement(router, request, type)

        return respond

    async def events(request: Request) -> Response:
        return await event_stream(router, request)

    routes = [
        Route("/", front_page),
        Route("/v1/server", about),
        Route("/health", health),
        Route("/ready", readiness),
        Route("/metrics", metrics),
        Route("/v1/databases/{database}/execute", statement("execute"), methods=["POST"]),
        Route("/v1/databases/{database}/define", statement("define"), methods=["POST"]),
        Route("/realtime/sse", events),
        Route("/realtime/v1/databases/{database}/sse", events),
        Mount("/static", StaticFiles(directory=STATIC, check_dir=False)),
    ]
    guard = Middleware(OriginMiddleware, allowed=allowed_origins, requires_auth=requires_auth)
    return Starlette(routes=routes, middleware=[guard])


# --- statements -----------------------------------------------------------------------------------------------------


async def _statement(router: ConnectionRouter, request: Request, type: str) -> Response:
    """Execute one statement: `{"statement": …, "params": …}` or `{"ontology": …}`."""
    if router.full:
        return error_response(CONNECTION_LIMIT_REACHED)
    try:
        async with asyncio.timeout(BODY_SECONDS):
            payload = await _body(request, router.limits.max_frame_bytes)
    except TimeoutError:
        return error_response(
            {"code": "too_slow", "message": f"the request body must arrive within {BODY_SECONDS:g} s"}
        )
    except ValueError as error:
        return error_response({"code": "invalid_payload", "message": str(error)})
    async with open_in_process(router, clean=True) as connection:
        answer = await connection.request(
            "auth", {"token": bearer_token(request), "database": request.path_params["database"]}
        )
        if answer["type"] != "error":
            answer = await connection.request(type, payload)
    if answer["type"] == "error":
        return error_response(answer["payload"])
    return JSONResponse(answer["payload"])


async def _body(request: Request, limit: int) -> dict[str, Any]:
    if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
        raise ValueError("the body must be JSON, with Content-Type: application/json")
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > limit:
            raise ValueError(f"a request may have at most {limit} bytes")
    try:
        body = msgspec.json.decode(b"".join(parts))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise ValueError("the body is not valid JSON") from None
    if not isinstance(body, dict):
        raise ValueError("the body must be a JSON object")
    return body

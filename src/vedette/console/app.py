"""The HTTP API on port 7708. All data access goes through the gateway."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from vedette.console.http_server import TimeLimitedH11Protocol
from vedette.console.in_process import InProcessConnection, open_in_process
from vedette.console.metrics import MetricsSource, metrics_text
from vedette.console.origins import OriginMiddleware
from vedette.console.page import STATIC, ServerInfo, front_page, info_response
from vedette.gateway.server.access import is_loopback
from vedette.gateway.server.auth import LoopbackAuthenticator
from vedette.gateway.server.router import ConnectionRouter

__all__ = ["HttpServer", "make_app"]

SSE_HEARTBEAT_SECONDS = 15.0
BODY_SECONDS = 30.0
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


_NO_ACKS = (
    "server-sent events cannot be acknowledged: a watch in consume mode, a reliable watch or a trigger requires a "
    "WebSocket"
)
_CONNECTION_LIMIT_REACHED = {
    "code": "too_many_connections",
    "message": "connection limit reached",
    "retryable": True,
}


def make_app(
    router: ConnectionRouter,
    *,
    metrics_source: MetricsSource,
    ready: Callable[[], str | None],
    server_info: Callable[[], ServerInfo],
    allowed_origins: tuple[str, ...] = (),
) -> Starlette:
    """`ready` returns what the server still waits for, or None."""
    requires_auth = not isinstance(router.authority, LoopbackAuthenticator)

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
        return await _events(router, request)

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
        return _error_response(_CONNECTION_LIMIT_REACHED)
    try:
        async with asyncio.timeout(BODY_SECONDS):
            payload = await _body(request, router.limits.max_frame_bytes)
    except TimeoutError:
        return _error_response(
            {"code": "too_slow", "message": f"the request body must arrive within {BODY_SECONDS:g} s"}
        )
    except ValueError as error:
        return _error_response({"code": "invalid_payload", "message": str(error)})
    async with open_in_process(router, clean=True) as connection:
        answer = await connection.request(
            "auth", {"token": _token(request), "database": request.path_params["database"]}
        )
        if answer["type"] != "error":
            answer = await connection.request(type, payload)
    if answer["type"] == "error":
        return _error_response(answer["payload"])
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


def _token(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _error_response(payload: dict[str, Any]) -> Response:
    return JSONResponse({"error": payload}, _STATUS.get(str(payload.get("code")), 400))


# --- server-sent events ---------------------------------------------------------------------------------------------


async def _events(router: ConnectionRouter, request: Request) -> Response:
    """Serve one subscription as server-sent events. `Last-Event-ID` is a resume token."""
    if router.full:
        return _error_response(_CONNECTION_LIMIT_REACHED)
    query = request.query_params
    database = request.path_params.get("database") or query.get("database", "")
    if "token" in query or "access_token" in query:
        return _error_response(
            {"code": "unauthorized", "message": "send the token in the Authorization header"}
        )
    request_payload: dict[str, Any]
    if "watch" in query:
        try:
            request_payload = {
                "watch": query["watch"],
                "params": msgspec.json.decode(query.get("params", "{}")),
            }
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return _error_response({"code": "invalid_payload", "message": "params must be JSON"})
    else:
        request_payload = {"collection": query.get("collection", ""), "includeData": True}
        request_payload |= {"filter": query["filter"]} if "filter" in query else {}
        request_payload |= {"sendSnapshot": True} if query.get("snapshot") in ("1", "true") else {}
    opened = open_in_process(router, clean=False)
    connection = await opened.__aenter__()
    first = await _open_subscription(
        connection, _token(request), database, request_payload, request.headers.get("last-event-id")
    )
    if isinstance(first, dict):
        await opened.__aexit__(None, None, None)
        return _error_response(first)

    async def stream() -> AsyncIterator[bytes]:
        try:
            yield b": connected\n\n"
            for message in first:
                yield _sse(message)
            while not connection.expire():
                try:
                    async with asyncio.timeout(min(SSE_HEARTBEAT_SECONDS, connection.seconds_left())):
                        data = await connection.receive()
                except TimeoutError:
                    yield b": heartbeat\n\n"
                    continue
                if data is None:
                    return
                if not connection.expire():
                    yield _sse(data)
            for data in connection.closing_messages():
                yield _sse(data)
        finally:
            await opened.__aexit__(None, None, None)

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(stream(), media_type="text/event-stream", headers=headers)


async def _open_subscription(
    connection: InProcessConnection, token: str, database: str, request: dict[str, Any], last: str | None
) -> list[bytes] | dict[str, Any]:
    """Authenticate, then resume or subscribe. Return the first messages, or an error payload. A failed resume is
    reported to the client, followed by a new subscription.
    """
    answer = await connection.request("auth", {"token": token, "database": database})
    if answer["type"] == "error":
        return dict(answer["payload"])
    first: list[bytes] = []
    if last:
        connection.send_message("resume", {"token": last, "subId": "default"}, "default")
        data = await connection.receive()
        if data is None:
            return {"code": "closed", "message": "the connection was closed"}
        first.append(data)
        if msgspec.json.decode(data).get("status") == "ok":
            return first
    connection.send_message("subscribe", request, "default")
    data = await connection.receive()
    if data is None:
        return {"code": "closed", "message": "the connection was closed"}
    message = msgspec.json.decode(data)
    if message["type"] == "error":
        return dict(message["payload"])
    if message["payload"].get("mode") == "consume" or message["payload"].get("lasts"):
        await connection.request("manage", {"subId": "default", "operation": "cancel"})
        return {"code": "invalid_payload", "message": _NO_ACKS}
    return [*first, data]


class _ResumableMessage(msgspec.Struct):
    class Payload(msgspec.Struct):
        resumeToken: str | None = None

    type: str
    payload: Payload | None = None


_resumable_message = msgspec.json.Decoder(_ResumableMessage)


def _sse(data: bytes) -> bytes:
    """Encode a message as one event of the stream; its id is the resume token."""
    if data.startswith(b'{"type":"heartbeat"'):
        return b": heartbeat\n\n"
    token = None
    with suppress(msgspec.MsgspecError):
        message = _resumable_message.decode(data)
        token = message.payload.resumeToken if message.payload is not None else None
    return (b"id: " + token.encode() + b"\n" if token else b"") + b"data: " + data + b"\n\n"


# --- serving --------------------------------------------------------------------------------------------------------


class _Uvicorn(uvicorn.Server):
    """Leaves signal handling to the process."""

    @contextmanager
    def capture_signals(self) -> Any:
        yield


class HttpServer:
    """Serves the app on a socket of the running event loop."""

    def __init__(self, app: Starlette, *, tls: ssl.SSLContext | None = None) -> None:
        self._app = app
        self._tls = tls
        self._server: _Uvicorn | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> int:
        config = uvicorn.Config(
            self._app,
            http=TimeLimitedH11Protocol,
            log_level="warning",
            access_log=False,
            lifespan="off",
            server_header=False,
            ws="none",
            timeout_graceful_shutdown=1,
        )
        config.load()
        config.ssl = self._tls
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=1024)
        self._server = _Uvicorn(config)
        self._task = asyncio.get_running_loop().create_task(self._server.serve(sockets=[listening]))
        return int(listening.getsockname()[1])

    async def stop(self) -> None:
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            self._server.force_exit = True
            await asyncio.gather(self._task, return_exceptions=True)

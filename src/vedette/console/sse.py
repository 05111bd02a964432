"""Server-sent events: one subscription per request, over the gateway's protocol.

Each event carries its resume token as its id. A browser that reconnects sends the last id in `Last-Event-ID`, and the
subscription is resumed from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from vedette.console.in_process import InProcessConnection, open_in_process
from vedette.console.responses import CONNECTION_LIMIT_REACHED, bearer_token, error_response
from vedette.gateway.server.router import ConnectionRouter

__all__ = ["event_stream"]

SSE_HEARTBEAT_SECONDS = 15.0
_NO_ACKS = (
    "server-sent events cannot be acknowledged: a watch in consume mode, a reliable watch or a trigger requires a "
    "WebSocket"
)


async def event_stream(router: ConnectionRouter, request: Request) -> Response:
    """Serve one subscription as server-sent events. `Last-Event-ID` is a resume token."""
    if router.full:
        return error_response(CONNECTION_LIMIT_REACHED)
    query = request.query_params
    database = request.path_params.get("database") or query.get("database", "")
    if "token" in query or "access_token" in query:
        return error_response(
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
            return error_response({"code": "invalid_payload", "message": "params must be JSON"})
    else:
        request_payload = {"collection": query.get("collection", ""), "includeData": True}
        request_payload |= {"filter": query["filter"]} if "filter" in query else {}
        request_payload |= {"sendSnapshot": True} if query.get("snapshot") in ("1", "true") else {}
    opened = open_in_process(router, clean=False)
    connection = await opened.__aenter__()
    first = await _open_subscription(
        connection, bearer_token(request), database, request_payload, request.headers.get("last-event-id")
    )
    if isinstance(first, dict):
        await opened.__aexit__(None, None, None)
        return error_response(first)

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

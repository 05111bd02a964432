"""The console: a page for browsers, which speaks to the gateway as any other client does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response

__all__ = ["STATIC", "ServerInfo", "facts_response", "front_page"]

STATIC = Path(__file__).parent / "static"
_PLACES = """Vedette. What is here:

  /                                             the console, for browsers
  /health, /ready, /metrics                     is it well
  POST /v1/databases/{database}/execute         {"statement": "MATCH t: Task RETURN t", "params": {}}
  POST /v1/databases/{database}/define          {"ontology": "node Task { title: String }"}
  /realtime/v1/databases/{database}/sse         ?collection=Task or ?watch=WATCH…: server-sent events
  /static/vedette.js                            the browser's client

The WebSocket is on the other port, at /realtime/ws.
"""
_SAFE = {
    "Content-Security-Policy": "default-src 'self'; connect-src 'self' ws: wss:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
"""Nothing but our own files runs there, and no other page shows it in a frame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """What the console has to know before it connects."""

    port: int
    """Of the WebSocket."""
    secure: bool = False
    databases: tuple[str, ...] = ()


async def front_page(request: Request) -> Response:
    """The console for whoever can show it; words for the others."""
    if "text/html" in request.headers.get("accept", ""):
        return FileResponse(STATIC / "index.html", headers=_SAFE)
    return PlainTextResponse(_PLACES)


def facts_response(facts: ServerInfo, *, guarded: bool) -> Response:
    """Which databases there are is said where nobody has to show who they are."""
    found = {"webSocketPort": facts.port, "secure": facts.secure, "tokens": guarded}
    return JSONResponse(found if guarded else {**found, "databases": facts.databases})
